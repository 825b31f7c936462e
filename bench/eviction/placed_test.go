package main

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ringcache/ringcache/bench/internal/policy"
	"github.com/ringcache/ringcache/shmring"
)

// small is a placement over little memory, with items for it.
type small struct {
	name  string
	make  func(capacity int64, l leases) placed
	exact bool // any free bytes do
}

var smalls = []small{
	{"ring", func(c int64, l leases) placed { return newRingCache(c, 0, 0, l) }, false},
	{"pool", func(c int64, l leases) placed { return newPoolCache(c, 0, l) }, false},
	{"leased", func(c int64, l leases) placed { return newLeasedCache(c, l) }, true},
}

func randomItems(n int, largest int64) []*policy.Item {
	rng := rand.New(rand.NewPCG(3, 4))
	items := make([]*policy.Item, n)
	for i := range items {
		items[i] = &policy.Item{ID: int32(i), Key: string(rune(i)), Size: 1 + rng.Int64N(largest), Cost: rng.Float64()}
	}
	return items
}

// TestLeasedItemsStay: what one of the last requests uses is in the cache, if it
// was put, whatever else goes; and no cache has more bytes than fit.
func TestLeasedItemsStay(t *testing.T) {
	const capacity, inFlight = 1 << 20, 16
	for _, s := range smalls {
		items := randomItems(300, capacity/16)
		c := s.make(capacity, newLeases(inFlight, 0))
		rng := rand.New(rand.NewPCG(5, 6))
		var last []*policy.Item // of the requests in flight, those that are stored
		left, refused := 0, 0
		before := map[*policy.Item]bool{}
		for range 20000 {
			it := items[int(float64(len(items))*rng.Float64()*rng.Float64())]
			if !c.Get(it) {
				c.Put(it)
			}
			now := map[*policy.Item]bool{}
			var bytes int64
			for _, it := range items {
				if stored(c, it) {
					now[it] = true
					bytes += it.Size
				}
			}
			for gone := range before {
				if now[gone] {
					continue
				}
				left++
				if slices.Contains(last, gone) {
					t.Fatalf("%s: a leased item was evicted", s.name)
				}
			}
			if bytes > capacity || bytes != c.account().live {
				t.Fatalf("%s: %d bytes in %d, the cache counted %d", s.name, bytes, capacity, c.account().live)
			}
			if !now[it] {
				refused++
				it = nil
			}
			last = append(last, it)
			last = last[max(0, len(last)-inFlight):]
			before = maps.Clone(now)
		}
		b := c.account()
		if left == 0 || b.refused != refused || b.blocked > refused || s.exact && b.blocked > 0 {
			t.Errorf("%s: %d evicted, %d refused, the cache counted %d and %d blocked", s.name, left, refused,
				b.refused, b.blocked)
		}
		c.close()
	}
}

func stored(c placed, it *policy.Item) (ok bool) {
	switch c := c.(type) {
	case *ringCache:
		_, ok = c.at[it]
	case *poolCache:
		_, ok = c.at[it]
	case *leasedCache:
		ok = c.Has(it)
	}
	return ok
}

// TestAbortBlocksTheRing for ever, once the lost item is the oldest; what is
// left of the room may do for tiny ones.
func TestAbortBlocksTheRing(t *testing.T) {
	items := randomItems(2000, 1<<14)
	for _, tt := range []struct {
		abort   int
		refuses bool
	}{{0, false}, {100, true}} {
		c := newRingCache(1<<20, 0, 0, newLeases(4, tt.abort))
		var late int
		for i, it := range items {
			before := c.refused
			c.Put(it)
			if i >= len(items)/2 {
				late += c.refused - before
			}
		}
		if tt.refuses && late < len(items)*49/100 || !tt.refuses && late > 0 {
			t.Errorf("abort %d: %d of the last %d puts refused", tt.abort, late, len(items)/2)
		}
		c.close()
	}
}

// TestRingRoom against a put of what should just fit, and of one byte more.
func TestRingRoom(t *testing.T) {
	for steps := range 200 {
		for _, more := range []int{0, 1} {
			const capacity = 1 << 18
			c := newRingCache(capacity, 0, 0, newLeases(3, 0))
			for _, it := range randomItems(steps, 1<<16) {
				c.Put(it)
			}
			largest, padding := c.room()
			if padding < 0 || c.live+padding+largest > capacity {
				t.Fatalf("%d live, %d padding, %d free in %d", c.live, padding, largest, capacity)
			}
			if largest <= shmring.HeaderSize {
				continue
			}
			_, _, _, err := c.ring.Alloc(int(largest) - shmring.HeaderSize + more)
			if (err == nil) != (more == 0) {
				t.Fatalf("after %d items: %d bytes should be free: %v", steps, largest, err)
			}
			c.close()
		}
	}
}

// TestRingPads only where an item does not fit in front of the end.
func TestRingPads(t *testing.T) {
	for _, tt := range []struct {
		size int64
		pads bool
	}{{1024 - shmring.HeaderSize, false}, {1000, true}} {
		c := newRingCache(1<<20, 1<<20, 0, newLeases(4, 0))
		for i := range int32(10000) {
			c.Put(&policy.Item{ID: i, Size: tt.size})
		}
		if c.puts < 8000 || c.refused > 0 || (c.padding > 0) != tt.pads {
			t.Errorf("items of %d bytes: %d puts, %d refused, padding %v", tt.size, c.puts, c.refused, c.padding)
		}
		c.close()
	}
}

// TestBooksCountWhenWarm, and blocked is only what would have had room.
func TestBooksCountWhenWarm(t *testing.T) {
	b := newOccupancy(100, 30)
	b.live = 30
	b.count(&policy.Item{Size: 30}, true, room{0, 70, 0})
	b.live = 50
	b.count(&policy.Item{Size: 20}, true, room{0, 25, 10})
	b.count(&policy.Item{Size: 60}, false, room{40, 25, 10})
	b.count(&policy.Item{Size: 61}, false, room{40, 25, 10})
	if b.puts != 3 || b.refused != 2 || b.blocked != 1 || b.live != 50 {
		t.Errorf("%+v", b)
	}
	if w := wasteOf(&b); w.used != 0.5 || w.least != 0.5 || w.hole != 0.5 || w.blocked != 1.0/3 ||
		w.padding < 0.0999 || w.padding > 0.1001 {
		t.Errorf("%+v", w)
	}
}
