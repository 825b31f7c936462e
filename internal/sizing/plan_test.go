package sizing

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sum(p Plan) (all float64) {
	for _, f := range p.Found {
		all += f.Share
	}
	return all
}

func TestPlanShapeAtItsEnds(t *testing.T) {
	s := Shape{Objects: 500, Zipf: 0.8, Bytes: 10}
	p := PlanShape(s, Sizes{Hosts: 3, Memory: 5000})
	require.InDelta(t, 1, p.Found[InMemory].Share, 1e-9, "memory has room for all")
	p = PlanShape(s, Sizes{Hosts: 3, Memory: 100, Disk: 5000})
	require.InDelta(t, 0, p.Found[Nowhere].Share, 1e-9, "the disk has room for all")
	p = PlanShape(s, Sizes{Hosts: 3, Memory: 1000})
	require.InDelta(t, 1, sum(p), 1e-9)
	require.Zero(t, p.Found[InStore].Share)
	require.InDelta(t, 10*p.Found[Nowhere].Share, p.Found[Nowhere].Bytes, 1e-9)
	for _, hosts := range []int{1, 3} {
		q := PlanShape(s, Sizes{Hosts: hosts, Memory: 1000, Store: Unbounded})
		require.InDelta(t, 0, q.Found[Nowhere].Share, 1e-9, "the store has all")
		require.Equal(t, p.Found[InMemory], q.Found[InMemory], "memory does not depend on the store")
		q = PlanShape(s, Sizes{Hosts: hosts, Memory: 1000, Store: 1 << 40})
		require.InDelta(t, 0, q.Found[Nowhere].Share, 1e-3, "it has room for all")
	}
	s.Once = 0.25
	p = PlanShape(s, Sizes{Hosts: 3, Memory: 1000, Store: Unbounded})
	require.InDelta(t, 0.25, p.Found[Nowhere].Share, 0.01, "what is asked for once is computed")
}

// TestFewerPlacesStandForMany: a host that is replayed at a fifth of its size finds the same.
func TestFewerPlacesStandForMany(t *testing.T) {
	s := Shape{Objects: 10_000, Zipf: 0.8, Once: 0.1, Bytes: 1}
	all, _ := s.replay(600, 2000, mostPlaces)
	few, _ := s.replay(600, 2000, 520)
	for at := range all {
		require.InDelta(t, all[at], few[at], 0.02)
	}
}

// TestStoreOfRandomQuestions: where hosts keep nothing, all questions are random, and the approximation is the one for a
// single cache.
func TestStoreOfRandomQuestions(t *testing.T) {
	s := Shape{Objects: 1000, Zipf: 0.9, Once: 0.1, Bytes: 1}
	d := s.draws(rand.New(rand.NewPCG(5, 6)), 1)
	const places, uses = 200, 200_000
	store, hits, asked := NewStore(places), 0.0, 0.0
	for i := range uses {
		key := d.draw()
		if i >= uses/2 && int(key) < s.Objects {
			asked++
			if store.Use(key) {
				hits++
			}
		}
		store.Put(key, 1)
	}
	all := make([]class, s.Objects)
	for i := range all {
		all[i] = class{objects: 1, rate: d.share(i), missed: 1}
	}
	for _, hosts := range []int{1, 50} {
		require.InEpsilon(t, hits/asked, lru(all, s.Once, places, hosts), 0.02, "%d hosts", hosts)
	}
}

func TestPlanTrace(t *testing.T) {
	read := func(text string, chain bool) *Trace {
		tr, err := ReadTrace(strings.NewReader(text), 1, chain)
		require.NoError(t, err)
		tr.Spread(1, rand.New(rand.NewPCG(1, 1)))
		return tr
	}
	z := Sizes{Hosts: 1, Memory: 100}
	p := PlanTrace(read("a b\na c\na b\nd b\n", false), z)
	require.InDelta(t, 0.75, p.Found[InMemory].Share, 1e-9, "only d is new")
	require.InDelta(t, 2, p.PerRequest, 1e-9)

	// Memory has room for one: the first of a chain that nobody has makes all behind it worthless.
	tr := read("a b c\nx\na b c\na b c\n", true)
	tr.Hosts = []uint16{0, 0, 1, 0}
	p = PlanTrace(tr, Sizes{Hosts: 2, Memory: 1, Store: Unbounded})
	require.InDelta(t, 1, sum(p), 1e-9)
	require.Zero(t, p.Found[Nowhere].Share, "the store has what another host has computed")

	tr = read("a b c\nw\nx y z\nx y z\n", true)
	p = PlanTrace(tr, Sizes{Hosts: 1, Memory: 1, Store: 1})
	require.InDelta(t, 1, sum(p), 1e-9)
	require.Greater(t, p.Found[Nowhere].Share, 0.5, "the store has one of the chunks, and not the first")
}

// TestWhatIsBehindAMissIsComputed: a chunk in memory is of no use if the one in front of it has to be computed.
func TestWhatIsBehindAMissIsComputed(t *testing.T) {
	tr := &Trace{Keys: []int32{0, 0, 1}, Ends: []int32{1, 3}, Hosts: []uint16{0, 0}, Bytes: []int64{1, 1}, Parents: []int32{-1, 0}}
	require.True(t, tr.Cuts(1, 3))
	require.False(t, tr.Cuts(0, 1), "the next one is of another request")
	require.False(t, tr.Cuts(2, 3))
	tr.Parents = nil
	require.False(t, tr.Cuts(1, 3))
}

func TestReadTrace(t *testing.T) {
	tr, err := ReadTrace(strings.NewReader("a=5 b\n\n{\"timestamp\": 3, \"hash_ids\": [7, 8]}\n{\"hash_ids\": [7]}\n"), 3, false)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2, 3, 2}, tr.Keys)
	require.Equal(t, []int32{2, 4, 5}, tr.Ends)
	require.Equal(t, []int64{5, 3, 3, 3}, tr.Bytes)
	require.Equal(t, []int32{-1, -1, -1, 2}, tr.Parents)
	for text, want := range map[string]string{
		"":                                    "there are 0 requests, and at least 2 are needed",
		"a=1\n":                               "there are 1 requests",
		"a=1\nb=\n":                           `line 2: "" behind "b" is no number of bytes`,
		"a=-1\nb\n":                           `line 1: "-1" behind "a" is no number of bytes`,
		"a=1\nb=99999999999999999999\n":       "is no number of bytes",
		"a=1\na=2\n":                          `line 2: "a" has 2 bytes, and had 1 before`,
		"a=1\nb\n":                            `line 2: "b" has no size: write KEY=BYTES`,
		"{\n{}\n":                             "line 1: it is no JSON object with a list hash_ids",
		"{\"ids\": [1]}\n":                    "line 1: it has no list hash_ids",
		"{\"hash_ids\": [\"x\"]}\n":           "line 1: it is no JSON object with a list hash_ids",
		"a=1\n" + strings.Repeat("x", 17<<20): "line 2: it is longer than",
	} {
		_, err := ReadTrace(strings.NewReader(text), 0, false)
		require.ErrorContains(t, err, want)
	}
	_, err = ReadTrace(strings.NewReader("a b\na\nb\n"), 1, true)
	require.ErrorContains(t, err, `line 3: "b" does not stand behind the same key as before`)
}

func FuzzReadTrace(f *testing.F) {
	f.Add("a=5 b\n{\"hash_ids\": [7, 8]}\n", true)
	f.Add("a b\na c\n", false)
	f.Fuzz(func(t *testing.T, text string, chain bool) {
		tr, err := ReadTrace(strings.NewReader(text), 1, chain)
		if err != nil {
			return
		}
		tr.Spread(2, rand.New(rand.NewPCG(1, 1)))
		p := PlanTrace(tr, Sizes{Hosts: 2, Memory: 3, Disk: 5, Store: 4})
		require.InDelta(t, 1, sum(p), 1e-6)
	})
}
