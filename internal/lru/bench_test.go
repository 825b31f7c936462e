package lru_test

import (
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/internal/lru"
)

// BenchmarkCache has a cache of 1000 entries, and twice as many keys.
func BenchmarkCache(b *testing.B) {
	const entries = 1000
	keys := make([]string, 2*entries)
	for i := range keys {
		keys[i] = fmt.Sprintf("%064d", i) // as long as a hash
	}
	full := func() *lru.Cache[int] {
		l := lru.New(entries, lru.Options[int]{})
		for i, k := range keys[:entries] {
			_ = l.Put(k, i, 1)
		}
		return l
	}
	b.Run("Get", func(b *testing.B) {
		l := full()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, ok := l.Get(keys[i%entries]); !ok {
				b.Fatal("a miss")
			}
		}
	})
	b.Run("Put", func(b *testing.B) { // each evicts another
		l := full()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := l.Put(keys[(entries+i)%len(keys)], i, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}
