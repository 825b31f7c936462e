package kvevents_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/lmcache/kvevents"
)

// A router asks who has the blocks of a prompt. Follow fills the directory from the events of an engine; here one report stands
// in for them.
func Example() {
	d := directory.New(directory.Options{})
	hasher, err := kv.NewHasher(kv.Scheme{Algorithm: kv.SHA256CBOR, ChunkTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	prompt := hasher.NewChain()
	if err := prompt.SetTokens([]int64{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
		log.Fatal(err)
	}
	id := directory.ID{Instance: "pod-1"}
	if err := d.Register(directory.Worker{ID: id, Lasting: true}); err != nil {
		log.Fatal(err)
	}
	keys := kvevents.AppendKeys(nil, "org/model", prompt)
	if err := d.Apply(id, "GPU", []directory.Report{{Key: keys[0], Number: -1}}); err != nil {
		log.Fatal(err)
	}

	question := fmt.Sprintf(`{"model_name": "org/model", "block_hashes": ["%x", "%x"]}`, prompt.Hash(0), prompt.Hash(1))
	w := httptest.NewRecorder()
	kvevents.Handler(d).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/events/longest", strings.NewReader(question)))
	fmt.Println(w.Body)
	// Output:
	// {"blocks":2,"instances":[{"instance_id":"pod-1","blocks":1,"blocks_at":{"GPU":1},"stale":false}]}
}
