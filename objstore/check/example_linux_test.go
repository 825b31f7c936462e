package check_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
)

// A segment is checked while its store has it open.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := objstore.CreatePool(objstore.Options{Name: "example", Dir: dir, RingSize: 1 << 16, Readers: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Abandon()
	req, err := store.Begin("request-1")
	if err != nil {
		log.Fatal(err)
	}
	item := &serde.Item{Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{6}, Data: []byte("pixels")},
	}}}
	if _, err := req.Put("photo", item, objstore.PutOptions{}); err != nil {
		log.Fatal(err)
	}
	if err := req.Commit(); err != nil {
		log.Fatal(err)
	}
	defer req.Finish()

	report, err := check.Segment("example", check.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Policy, report.Chunks, "chunk,", len(report.Findings), "findings")
	// Output: pool 1 chunk, 0 findings
}
