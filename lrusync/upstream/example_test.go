package upstream_test

import (
	"fmt"

	"github.com/ringcache/ringcache/lrusync/upstream"
)

// The oldest entries make room, as in vLLM.
func ExampleLRUCache() {
	cache := upstream.NewLRUCache(10, upstream.LRUOptions[string]{
		OnRemove: func(key, v string) { fmt.Println("evicted", key, v) },
	})
	_ = cache.Put("a", "first", 4)
	_ = cache.Put("b", "second", 4)
	cache.Get("a") // now b is the oldest
	_ = cache.Put("c", "third", 5)
	for key, e := range cache.All() {
		fmt.Println(key, e.Value, e.Size)
	}
	fmt.Println(cache.Put("d", "fourth", 11))
	// Output:
	// evicted b second
	// a first 4
	// c third 5
	// lrusync: "d" has 11 bytes, the cache 10 bytes: make the cache larger
}
