package evict

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are those of the model, bit for bit, over millions of uses: of skewed keys, loops and
// scans, with evicted keys that return, with ghosts that are forgotten, over many times forget, and
// past the time that a policy writes down.
func TestValuesAreThoseOfTheModel(t *testing.T) {
	for name, load := range map[string]struct {
		uses, room int
		key        func(r *rand.Rand, i int) int
	}{
		"a few":           {300_000, 5, skewed(100)},
		"skewed":          {400_000, 1000, skewed(20_000)},
		"long":            {1_500_000, 3000, skewed(60_000)},
		"many":            {400_000, 20_000, skewed(400_000)},
		"all are ghosts":  {200_000, 1, skewed(30_000)},
		"loop":            {300_000, 100, func(_ *rand.Rand, i int) int { return i % 120 }},
		"scan":            {300_000, 50_000, func(_ *rand.Rand, i int) int { return i }},
		"turns, and ends": {300_000, 2000, func(_ *rand.Rand, i int) int { return i%50 + i/1000*10 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uses := load.uses
			if testing.Short() {
				uses /= 10
			}
			compare(t, uses, load.room, load.key)
		})
	}
}

func skewed(keys uint64) func(*rand.Rand, int) int {
	z := rand.NewZipf(rand.New(rand.NewPCG(keys, 1)), 1.1, 10, keys)
	return func(*rand.Rand, int) int { return int(z.Uint64()) }
}

// compare makes the same calls to a policy and to its model.
func compare(t *testing.T, uses, room int, draw func(*rand.Rand, int) int) {
	type object struct {
		key  string
		cost float64
		e    Entry
		m    *listedEntry
	}
	r := rand.New(rand.NewPCG(uint64(uses), uint64(room)))
	p, m := New(), newListed()
	live := map[string]*object{}
	var all []*object
	equal := func(i int, o *object) {
		if got, want := p.Value(&o.e), m.Value(o.m); got != want {
			t.Fatalf("use %d: key %s has the value %v, want %v", i, o.key, got, want)
		}
	}
	ghosts := 0
	for i := range uses {
		key := fmt.Sprint(draw(r, i))
		if o := live[key]; o != nil {
			p.Hit(&o.e)
			m.Hit(o.m)
		} else {
			if len(all) == room {
				j := r.IntN(len(all))
				o := all[j]
				all[j] = all[len(all)-1]
				all = all[:len(all)-1]
				delete(live, o.key)
				equal(i, o)
				if r.IntN(8) == 0 {
					p.Remove(&o.e)
					m.Remove(o.m)
				} else {
					p.Evict(&o.e)
					m.Evict(o.m)
				}
			}
			cost := r.Float64() * 100
			o := &object{key: key, cost: cost, m: m.Add(key, cost)}
			p.Add(&o.e, key, cost)
			live[key] = o
			all = append(all, o)
		}
		equal(i, all[r.IntN(len(all))])
		ghosts = max(ghosts, p.ghosts.n)
	}
	for _, o := range all {
		equal(uses, o)
	}
	require.Equal(t, len(m.ghosts), p.ghosts.n)
	checkGhosts(t, p)
	require.NotZero(t, ghosts+len(all))
}
