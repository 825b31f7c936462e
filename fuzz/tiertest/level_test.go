package tiertest_test

import (
	"sync/atomic"
	"testing"
	"time"

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

func TestMap(t *testing.T)        { tiertest.Level(t, mapOptions(500)) }
func TestMapsLeases(t *testing.T) { tiertest.Memory(t, mapOptions(0)) }

// clock is one that tests put forward.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func TestMapsLeasesWithAClock(t *testing.T) {
	var c clock
	o := mapOptions(500)
	o.Now, o.Advance = c.now, c.advance
	o.Open = func(_ testing.TB, capacity int64) tier.Level {
		return tiertest.NewMap(tiertest.MapOptions{Capacity: capacity, Overhead: 500, Now: c.now})
	}
	tiertest.Memory(t, o)
}

// A Fault that was told nothing is the level that it stands in front of.
func TestFaultPassesEverythingOn(t *testing.T) {
	o := mapOptions(0)
	tiertest.Level(t, tiertest.Options{
		Open:      func(t testing.TB, capacity int64) tier.Level { return tiertest.NewFault(o.Open(t, capacity)) },
		Damage:    func(t testing.TB, l tier.Level, k tier.Key) { o.Damage(t, l.(*tiertest.Fault).Level, k) },
		Histories: 1,
	})
}
