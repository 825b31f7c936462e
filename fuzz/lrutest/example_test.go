package lrutest_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/fuzz/lrutest"
)

// hoard is a cache of one value for each key that never evicts.
type hoard map[string][]byte

func (h hoard) Put(key string, value []byte) bool {
	h[key] = value
	return true
}

func (h hoard) Get(key string) ([]byte, bool) {
	value, ok := h[key]
	return value, ok
}

func (h hoard) Remove(key string) bool {
	_, ok := h[key]
	delete(h, key)
	return ok
}

func (h hoard) Entries() (all []lrutest.Entry) {
	for key, value := range h {
		all = append(all, lrutest.Entry{Key: key, Size: int64(len(value))})
	}
	return all
}

func (h hoard) Size() (sum int64) {
	for _, value := range h {
		sum += int64(len(value))
	}
	return sum
}

// What Check would print of a cache with a bug.
func ExampleFind() {
	failure, _, err := lrutest.Find(func(float64) lrutest.Cache { return hoard{} }, lrutest.Options{Capacity: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(failure.Invariant, "is broken by", len(failure.Ops), "operations")
	// Output: never-above-capacity is broken by 2 operations
}
