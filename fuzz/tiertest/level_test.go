package tiertest_test

import (
	"testing"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// mapOptions test a Map with an overhead.
func mapOptions(overhead int64) tiertest.Options {
	return tiertest.Options{
		Open: func(_ testing.TB, capacity int64) tier.Level {
			return tiertest.NewMap(tiertest.MapOptions{Capacity: capacity, Overhead: overhead})
		},
		Reopen: func(_ testing.TB, l tier.Level) tier.Level { return l.(*tiertest.Map).Reopen() },
		Kill:   func(_ testing.TB, l tier.Level) tier.Level { return l.(*tiertest.Map).Reopen() },
		Damage: func(t testing.TB, l tier.Level, k tier.Key) {
			if !l.(*tiertest.Map).Damage(k) {
				t.Fatalf("%v is not there", k)
			}
		},
		At: func(_ testing.TB, l tier.Level, offset uint64, n int64) []byte {
			return l.(*tiertest.Map).At(offset, n)
		},
	}
}

func TestMap(t *testing.T)             { tiertest.Level(t, mapOptions(0)) }
func TestMapWithOverhead(t *testing.T) { tiertest.Level(t, mapOptions(500)) }
