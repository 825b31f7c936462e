package evict

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// cached is a cache of equal objects, whose victims are those of least value.
type cached struct {
	*Policy
	room    int
	entries map[string]*Entry
	keys    []string
	uses    int
	hits    int
}

// add is Policy.Add with a new entry.
func add(p *Policy, key string, cost float64) *Entry {
	e := new(Entry)
	p.Add(e, key, cost)
	return e
}

func newCached(room int) *cached {
	return &cached{Policy: New(), room: room, entries: map[string]*Entry{}}
}

// use is a request; the key it evicted, if any.
func (c *cached) use(key string) (evicted string) {
	c.uses++
	if e := c.entries[key]; e != nil {
		c.hits++
		c.Hit(e)
		return ""
	}
	if len(c.keys) == c.room {
		at := 0
		for i, k := range c.keys {
			if c.Value(c.entries[k]) < c.Value(c.entries[c.keys[at]]) {
				at = i
			}
		}
		evicted = c.keys[at]
		c.Evict(c.entries[evicted])
		delete(c.entries, evicted)
		c.keys[at] = c.keys[len(c.keys)-1]
		c.keys = c.keys[:len(c.keys)-1]
	}
	c.entries[key] = add(c.Policy, key, 1)
	c.keys = append(c.keys, key)
	return evicted
}

func TestStartOfAges(t *testing.T) {
	for a, want := range []int64{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32} {
		require.Equal(t, want, start(a), a)
	}
	for a := range ages {
		require.Less(t, start(a), start(a+1))
	}
	require.Equal(t, int64(1<<20), start(ages))
}

// The age of an object follows from the time since its last use.
func TestAges(t *testing.T) {
	for n := range int64(5000) {
		require.LessOrEqual(t, start(ageOf(n)), n)
		require.Greater(t, start(ageOf(n)+1), n)
	}
	for a := range ages {
		require.Equal(t, a, ageOf(start(a)))
		require.Equal(t, a, ageOf(start(a+1)-1))
	}
	require.Equal(t, ages-1, ageOf(start(ages)))
	require.Equal(t, ages-1, ageOf(1<<62))
}

func TestValuesOfOneMoment(t *testing.T) {
	p := New()
	dear, cheap := add(p, "dear", 100), add(p, "cheap", 1)
	for range 5 {
		p.Hit(dear)
		p.Hit(cheap)
	}
	require.InEpsilon(t, 100, p.Value(dear)/p.Value(cheap), 0.5, "by the cost")
	for _, cost := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		require.Zero(t, p.Value(add(p, "odd", cost)), cost)
	}
	for _, cost := range []float64{math.Inf(1), math.MaxFloat64} {
		huge := p.Value(add(p, "huge", cost))
		require.Greater(t, huge, p.Value(dear))
		require.Less(t, huge, 2*math.MaxFloat32)
	}
	once, often := add(p, "once", 1), add(p, "often", 1)
	p.Hit(often)
	p.Hit(often)
	p.Hit(once)
	require.Greater(t, p.Value(often), p.Value(add(p, "new", 1)), "who returned will return, as long as nothing is known")
}

func TestHistoryComesBack(t *testing.T) {
	tests := []struct {
		name string
		goes func(*Policy, *Entry)
		back bool
	}{
		{"evicted", (*Policy).Evict, true},
		{"removed", (*Policy).Remove, false},
		{"removed, then evicted", func(p *Policy, e *Entry) { p.Remove(e); p.Evict(e) }, false},
		{"evicted, then removed", func(p *Policy, e *Entry) { p.Evict(e); p.Remove(e) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := New()
			e := add(p, "key", 1)
			for range 6 {
				p.Hit(e)
			}
			tt.goes(p, e)
			require.Zero(t, p.Value(e), "dead")
			again, fresh := add(p, "key", 1), add(p, "fresh", 1)
			require.Zero(t, p.ghosts.n)
			if tt.back {
				require.EqualValues(t, 7, again.returns)
				require.Greater(t, p.Value(again), p.Value(fresh))
			} else {
				require.Zero(t, again.returns)
			}
			now := p.now
			p.Hit(e)
			p.Evict(e)
			p.Remove(e)
			require.Equal(t, now, p.now, "a dead entry does nothing")
			require.True(t, again.Live())
			require.Zero(t, p.ghosts.n)
		})
	}
}

// Two keys with one hash, or one key that is stored twice.
func TestEqualHashes(t *testing.T) {
	p := New()
	a, b := add(p, "key", 1), add(p, "key", 1)
	p.Evict(a)
	p.Evict(b)
	require.Equal(t, 1, p.ghosts.n)
	checkGhosts(t, p)
	add(p, "key", 1)
	require.Zero(t, p.ghosts.n)
	checkGhosts(t, p)
}

func TestGhostsAreBounded(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	p := New()
	p.Evict(add(p, "first", 1))
	for i := range 3 * maxGhosts {
		p.Evict(add(p, fmt.Sprint("key ", i), 1))
		require.LessOrEqual(t, p.ghosts.n, maxGhosts)
	}
	after := heap()
	require.Equal(t, maxGhosts, p.ghosts.n)
	checkGhosts(t, p)
	require.Equal(t, maxGhosts, count(p), "what was forgotten grows no older")
	require.Zero(t, add(p, "first", 1).returns, "the oldest was forgotten")
	require.EqualValues(t, 1, add(p, fmt.Sprint("key ", 3*maxGhosts-1), 1).returns)
	if after > before {
		require.Less(t, int(after-before), 100*maxGhosts, "bytes per ghost, with all that a policy has")
	}
	runtime.KeepAlive(p)
}

// checkGhosts verifies that every ghost is found, and is in the order once.
func checkGhosts(t require.TestingT, p *Policy) {
	g := &p.ghosts
	n := 0
	for at := g.all[0].next; at != 0; at = g.all[at].next {
		n++
		require.Equal(t, at, g.find(g.all[at].hash))
		require.Equal(t, at, g.all[g.all[at].prev].next)
		require.Equal(t, at, g.all[g.all[at].next].prev)
	}
	require.Equal(t, g.n, n)
	for _, at := range g.table {
		if at != 0 {
			n--
		}
	}
	require.Zero(t, n, "places in the table that no ghost has")
	for at := g.free; at != 0; at = g.all[at].next {
		n++
	}
	require.Equal(t, len(g.all)-1, g.n+n, "places that are neither free nor used")
}

// count returns how many objects and ghosts the past has.
func count(p *Policy) (n int) {
	for _, c := range p.past.classes {
		if c != 0 {
			n++
		}
	}
	return n
}

// Observations count half after a while, and classes are computed anew.
func TestForgets(t *testing.T) {
	p := New()
	p.left[classes-1][7], p.stale[classes-1] = shares{used: 8, all: 16}, true
	before := p.rate[classes-1][7]
	for range forget {
		p.Remove(add(p, "key", 1))
	}
	require.Equal(t, shares{used: 4, all: 8}, p.left[classes-1][7])
	require.NotEqual(t, before, p.rate[classes-1][7])
}

// The first gaps count alike, later the newest counts for a fifth.
func TestMeanGap(t *testing.T) {
	p := New()
	e := add(p, "key", 1)
	hitAfter := func(uses int) {
		for range uses - 1 {
			p.Remove(add(p, "other", 1))
		}
		p.Hit(e)
	}
	for i, want := range []struct {
		after int
		gap   float64
		class uint8
	}{
		{16, 4, 1 + 4},
		{4, 3, 1 + gaps + 3},
		{8, 3, 1 + gaps + 3},
		{128, 4, 1 + 2*gaps + 4},
		{16, 4, 1 + 2*gaps + 4},
		{1, 3.2, 1 + 2*gaps + 3},
		{512, 4.36, 1 + 2*gaps + 4},
		{16, 4.288, 1 + 3*gaps + 4},
	} {
		hitAfter(want.after)
		require.InDelta(t, want.gap, e.gap, 1e-9, i)
		require.Equal(t, want.class, e.class, i)
	}
}

// The rates are those of trying all times to keep an object.
func TestRateIsTheBestOfAllTimes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := New()
		class := rapid.IntRange(0, classes-1).Draw(r, "class")
		for a := range ages {
			all := rapid.Float64Range(0, 1000).Draw(r, "all")
			p.left[class][a] = shares{all * rapid.Float64Range(0, 1).Draw(r, "share"), all}
		}
		p.learn(class)
		for a := range ages {
			best, returns, time, alive := 0.0, 0.0, 0.0, 1.0
			for b := a; b < ages; b++ {
				s, width := p.left[class][b], float64(start(b+1)-start(b))
				q := (s.used + strength*prior(class, start(b), width)) / (s.all + strength)
				returns += alive * q
				time += alive * width * (1 - q/2)
				alive *= 1 - q
				best = max(best, returns/time)
			}
			require.InEpsilon(r, best, p.rate[class][a], 1e-9, "age %d", a)
		}
	})
}

// A scan of unique keys costs a hot object nothing, from the first eviction on.
func TestScanEvictsNoHotObject(t *testing.T) {
	for _, hot := range []int{1, 10, 40} {
		c := newCached(50)
		unique := 0
		for round := range 400 {
			for h := range hot {
				c.use(fmt.Sprint("hot ", h))
			}
			if round < 5 {
				continue // so that they are hot
			}
			for range 30 {
				evicted := c.use(fmt.Sprint("unique ", unique))
				unique++
				require.NotContains(t, evicted, "hot", "round %d", round)
			}
		}
		for range 1000 {
			require.NotContains(t, c.use(fmt.Sprint("unique ", unique)), "hot", "a long scan")
			unique++
		}
	}
}

// On a loop, least recently used has no hit; the best is what fits, less one.
func TestLoopKeepsWhatFits(t *testing.T) {
	c := newCached(100)
	for range 100 {
		for k := range 120 {
			c.use(fmt.Sprint(k))
		}
	}
	require.Greater(t, float64(c.hits)/float64(c.uses), 0.7)
}

// Images that are shown five times and never again must not crowd out those to
// come, however often they were used: frequency would do that.
func TestEndOfUseIsLearned(t *testing.T) {
	c := newCached(100)
	shown := map[string]int{}
	evictions, early := 0, 0
	for i := range 20000 {
		// 20 conversations in turn, each of which shows its last five images.
		turn, who := i/20, i%20
		for k := max(0, turn-4); k <= turn; k++ {
			key := fmt.Sprint(who, " ", k)
			shown[key]++
			if evicted := c.use(key); evicted != "" && i > 1000 {
				evictions++
				if shown[evicted] < 5 {
					early++
				}
			}
		}
	}
	require.Greater(t, float64(c.hits)/float64(c.uses), 0.79, "all but the first of five")
	require.Greater(t, evictions, 15000)
	require.Less(t, early, evictions/100)
}

// What was learned of a load is forgotten when it changes.
func TestChangeOfLoad(t *testing.T) {
	c := newCached(100)
	for i := range 100000 {
		c.use(fmt.Sprint(i % 120))
	}
	c.uses, c.hits = 0, 0
	for i := range 100000 {
		c.use(fmt.Sprint("hot ", i*i%90)) // fits, but for the uniques between
		if i%3 == 0 {
			c.use(fmt.Sprint("unique ", i))
		}
	}
	require.Greater(t, float64(c.hits)/float64(c.uses), 0.7, "of 0.75")
}

func TestEqualCallsGiveEqualValues(t *testing.T) {
	run := func() []string {
		c := newCached(20)
		var evicted []string
		for i := range 5000 {
			evicted = append(evicted, c.use(fmt.Sprint(i*i%97, i%5)))
		}
		return evicted
	}
	require.Equal(t, run(), run())
}

func TestAnyCalls(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := New()
		var live, dead []*Entry
		one := func(name string) int {
			if len(live) == 0 {
				r.Skip("nothing is stored")
			}
			return rapid.IntRange(0, len(live)-1).Draw(r, name)
		}
		out := func(i int) {
			dead = append(dead, live[i])
			live = append(live[:i], live[i+1:]...)
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				key := rapid.StringMatching("[A-H]").Draw(r, "key")
				live = append(live, add(p, key, rapid.Float64().Draw(r, "cost")))
			},
			"add many": func(r *rapid.T) {
				for i := range rapid.IntRange(0, 100).Draw(r, "n") {
					p.Evict(add(p, fmt.Sprint("many ", i), 1))
				}
			},
			"hit": func(*rapid.T) {
				e := live[one("entry")]
				p.Hit(e)
				require.Equal(r, p.now, e.last)
			},
			"evict":  func(*rapid.T) { i := one("entry"); p.Evict(live[i]); out(i) },
			"remove": func(*rapid.T) { i := one("entry"); p.Remove(live[i]); out(i) },
			"use the dead": func(r *rapid.T) {
				for _, e := range dead {
					p.Hit(e)
					p.Evict(e)
					p.Remove(e)
				}
			},
			"": func(r *rapid.T) {
				for _, e := range live {
					v := p.Value(e)
					require.False(r, v < 0 || math.IsNaN(v) || math.IsInf(v, 0), v)
				}
				for _, e := range dead {
					require.Zero(r, p.Value(e))
				}
				require.LessOrEqual(r, p.ghosts.n, maxGhosts)
				checkGhosts(r, p)
				if p.now < maxPast {
					require.Equal(r, len(live)+p.ghosts.n, count(p))
				}
				for _, e := range live {
					require.Equal(r, e.class+1, p.past.classes[e.last&int64(len(p.past.classes)-1)])
				}
			},
		})
	})
}

func BenchmarkUse(b *testing.B) {
	p := New()
	entries := make([]*Entry, 1000)
	for i := range entries {
		entries[i] = add(p, fmt.Sprint(i), 1)
	}
	for i := 0; b.Loop(); i++ {
		p.Hit(entries[i*i%1000])
	}
}

func TestAUseAllocatesNothing(t *testing.T) {
	p := New()
	entries := make([]Entry, 3*maxGhosts)
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = fmt.Sprint(i)
	}
	next := 0
	use := func() {
		p.Add(&entries[next], keys[next], 1)
		p.Hit(&entries[next])
		p.Evict(&entries[next])
		next = (next + 1) % len(entries)
	}
	for range entries {
		use() // grows the tables
	}
	for p.now < maxPast {
		p.Hit(&entries[0])
		p.Add(&entries[0], keys[0], 1)
		p.Remove(&entries[0])
	}
	require.Zero(t, testing.AllocsPerRun(100, use))
}

func BenchmarkValue(b *testing.B) {
	p := New()
	e := add(p, "key", 1)
	for b.Loop() {
		_ = p.Value(e)
	}
}
