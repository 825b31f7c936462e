package memory_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// A lease reserves room, writes there, and has the object in the same place when the next process takes the segment over.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	o := memory.Options{Name: "example", Dir: dir, Size: 1 << 20}
	l, err := memory.Open(o)
	if err != nil {
		log.Fatal(err)
	}
	lease := tier.LeaseOptions{ID: "request-17", Until: time.Now().Add(5 * time.Minute)}
	x, err := l.Lease(ctx, lease)
	if err != nil {
		log.Fatal(err)
	}
	key := tier.Key{Space: "model", Name: "photo-1"}
	place := x.Reserve([]tier.Object{{Key: key, Size: 6}})[0]
	copy(place.Bytes, "output")
	fmt.Println(place.Err, x.Commit([]tier.Key{key})) // Commit pins the object
	if err := l.Close(); err != nil {                 // or a kill
		log.Fatal(err)
	}

	l, err = memory.Open(o)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Remove()
	x, err = l.Lease(ctx, lease)
	if err != nil {
		log.Fatal(err)
	}
	again := x.Held([]tier.Key{key})[0]
	fmt.Printf("%s, in the same place: %t\n", again.Bytes, again.Offset == place.Offset)
	x.Release()
	// Output:
	// <nil> [<nil>]
	// output, in the same place: true
}
