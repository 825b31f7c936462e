package inspect_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// What lies in the segments of a folder, beside the process that has them.
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
	defer req.Rollback()
	item := &serde.Item{Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{6}, Data: []byte("pixels")},
	}}}
	if _, err := req.Put("photo", item, objstore.PutOptions{}); err != nil {
		log.Fatal(err)
	}

	all, err := inspect.List(inspect.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(all), "segment:", all[0].Name, all[0].State)
	x, err := inspect.Open("example", inspect.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	for o := range x.Objects() {
		fmt.Println(o.Key, o.State)
	}
	// Output:
	// 1 segment: example alive
	// photo in use
}
