package tier_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// An object goes to memory and to a disk, and is still there when the memory is gone.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	open := func() (*tier.Store, func()) {
		fast, err := memory.Open(memory.Options{Name: "example", Dir: dir, Size: 1 << 20})
		if err != nil {
			panic(err)
		}
		slow, err := disk.Open(dir+"/disk", disk.Options{})
		if err != nil {
			panic(err)
		}
		s, err := tier.Open(ctx, tier.Options{Memory: fast, Lower: []tier.Lower{{Level: slow}}})
		if err != nil {
			panic(err)
		}
		return s, func() {
			if err := errors.Join(s.Close(), slow.Close(), fast.Remove()); err != nil { // Close of memory keeps the segment
				panic(err)
			}
		}
	}

	s, end := open()
	key := tier.Key{Space: "model", Name: "photo-1"}
	puts := []tier.Put{{Object: tier.Object{Key: key, Size: 6}, Bytes: []byte("output")}}
	s.Put(ctx, puts)
	left, err := s.Drain(ctx) // what could not be written to the disk
	fmt.Println(puts[0].Err, len(left), err)
	end()

	s, end = open()
	defer end()
	fmt.Println("levels:", s.Stat(ctx, []tier.Key{key})[0].Levels)
	gets := []tier.Get{{Key: key}, {Key: tier.Key{Space: "model", Name: "photo-2"}}}
	s.Get(ctx, gets)
	fmt.Printf("%s %v\n", gets[0].Bytes, gets[0].Err)
	fmt.Println("a miss:", errors.Is(gets[1].Err, tier.ErrNotFound))
	// Output:
	// <nil> 0 <nil>
	// levels: [disk]
	// output <nil>
	// a miss: true
}
