package lookup_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/lmcache/lookup"
)

// A scheduler asks a worker how many tokens of a request are stored.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, err := lookup.Address{Base: dir, Engine: "engine-1"}.Path(0)
	if err != nil {
		log.Fatal(err)
	}
	worker, err := lookup.NewServer(lookup.ServerOptions{Lookup: func(_ context.Context, r lookup.Request) (int, error) {
		return r.Lengths[0], nil // the first chunk alone
	}})
	if err != nil {
		log.Fatal(err)
	}
	l, err := lookup.Listen(path)
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Serve(l) }()
	defer func() { worker.Close(); <-ended }()

	hasher, err := kv.NewHasher(kv.Scheme{Algorithm: kv.Builtin, Seed: "0", Legacy: true, ChunkTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	database, err := kv.NewTokenDatabase(hasher, kv.EngineKey{Model: "org/model", World: 1, DType: "bfloat16"})
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := lookup.NewClient(lookup.ClientOptions{Paths: []string{path}, Database: database})
	if err != nil {
		log.Fatal(err)
	}
	defer scheduler.Close()
	stored, err := scheduler.Lookup(context.Background(), "request-1", []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, "")
	fmt.Println(stored, err)
	// Output: 4 <nil>
}
