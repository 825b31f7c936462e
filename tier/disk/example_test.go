package disk_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// A folder keeps an object, and every read of it is verified.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := disk.Open(dir, disk.Options{Capacity: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	ctx, key := context.Background(), tier.Key{Space: "model", Name: "photo-1"}
	l.Put(ctx, []tier.Put{{Object: tier.Object{Key: key, Size: 6}, Bytes: []byte("output")}})
	gets := []tier.Get{{Key: key}}
	l.Get(ctx, gets)
	fmt.Printf("%s %v\n", gets[0].Bytes, gets[0].Err)
	for o, err := range l.List(ctx, "model") {
		fmt.Println(o.Key, o.Size, err)
	}
	// Output:
	// output <nil>
	// "photo-1" of space "model" 6 <nil>
}
