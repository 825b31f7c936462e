package upstream_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/ringcache/ringcache/fuzz/lrutest"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// testedLRU is an LRUCache as lrutest wants it. It has what OnRemove leaves beside it.
type testedLRU struct {
	*upstream.LRUCache[[]byte]
	beside map[string]bool
}

func newTestedLRU(anew bool) lrutest.New {
	return func(capacity float64) lrutest.Cache {
		c := testedLRU{beside: map[string]bool{}}
		c.LRUCache = upstream.NewLRUCache(capacity, upstream.LRUOptions[[]byte]{GrowAnew: anew, OnRemove: func(key string, _ []byte) {
			if !c.beside[key] {
				panic(fmt.Sprintf("%q was removed twice", key))
			}
			delete(c.beside, key)
		}})
		return c
	}
}

// Put is put_if_fits, which puts whatever fits.
func (c testedLRU) Put(key string, value []byte) bool {
	stored, err := c.PutIfFits(key, value, int64(len(value)))
	if stored && err == nil {
		c.beside[key] = true
	}
	return stored && err == nil
}

// Get is GetItem for what is there, and else get, which counts the miss.
func (c testedLRU) Get(key string) ([]byte, bool) {
	if value, ok := c.GetItem(key); ok {
		return value, true
	}
	return c.LRUCache.Get(key)
}

func (c testedLRU) Remove(key string) bool {
	_, ok := c.Pop(key)
	return ok
}

func (c testedLRU) PopOldest(evenPinned bool) (key string, ok bool) {
	key, _, err := c.PopItem(evenPinned)
	return key, err == nil
}

func (c testedLRU) Entries() (out []lrutest.Entry) {
	there := map[string]bool{}
	for key, e := range c.All() {
		out = append(out, lrutest.Entry{Key: key, Size: e.Size, Pinned: e.Pinned})
		there[key] = true
	}
	if err := c.CheckStructure(); err != nil {
		panic(err)
	}
	if !maps.Equal(there, c.beside) {
		panic(fmt.Sprintf("OnRemove leaves %v, there is %v", c.beside, there))
	}
	return out
}

func (c testedLRU) Counts() (hits, total int64) {
	s := c.Stat(false)
	return s.Hits, s.Total
}

func TestLRUCacheIsVLLMs(t *testing.T) {
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprintf("grow anew %t", anew), func(t *testing.T) {
			lrutest.Check(t, newTestedLRU(anew), lrutest.Options{Release: "0.33.0", GrowAnew: anew})
		})
	}
}
