package shmstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
)

// What goes is as cheap with spares as with a search for each put: on loads of which the best
// policies differ, hits save as much of the time to make the objects.
func TestSparesAreAsCheap(t *testing.T) {
	loads := map[string]func(r *rand.Rand, room int) func(i int) (key, cost int){
		"skewed": func(r *rand.Rand, room int) func(int) (int, int) {
			z := rand.NewZipf(r, 1.1, 10, uint64(20*room))
			return func(int) (int, int) { k := int(z.Uint64()); return k, 1 + k%7 }
		},
		"loop": func(_ *rand.Rand, room int) func(int) (int, int) {
			return func(i int) (int, int) { return i % (room + room/5), 1 }
		},
		"scans": func(r *rand.Rand, room int) func(int) (int, int) {
			return func(i int) (int, int) {
				if i%2 == 0 {
					return -i, 1
				}
				return r.IntN(room * 3 / 4), 1
			}
		},
		"conversations": func(_ *rand.Rand, room int) func(int) (int, int) {
			// Each shows its last five images in a turn.
			return func(i int) (int, int) {
				who, step := i%(room/5), i/(room/5)
				return who<<32 | (step/5 + step%5), 1
			}
		},
		"drift": func(r *rand.Rand, room int) func(int) (int, int) {
			return func(i int) (int, int) { k := i/20 + int(float64(2*room)*r.Float64()*r.Float64()); return k, 1 + k%5 }
		},
	}
	for name, load := range loads {
		for _, room := range []int{100, 1500} {
			for _, limit := range []string{"bytes", "objects"} {
				t.Run(fmt.Sprintf("%s/%d %s", name, room, limit), func(t *testing.T) {
					t.Parallel()
					with := saved(t, room, limit, true, load(rand.New(rand.NewPCG(1, 2)), room))
					without := saved(t, room, limit, false, load(rand.New(rand.NewPCG(1, 2)), room))
					t.Logf("saved cost: %.4f with spares, %.4f without", with, without)
					require.Greater(t, with, without-0.01)
				})
			}
		}
	}
}

// saved replays a load of objects of one size in a store with room for so many, and returns the
// share of the cost that hits save.
func saved(t *testing.T, room int, limit string, spares bool, load func(int) (key, cost int)) float64 {
	o := Options{Size: room * 448, MaxObjects: 2 * room}
	if limit == "objects" {
		o = Options{Size: 2 * room * 448, MaxObjects: room}
	}
	seg, err := segment.Private(nil, o.segment())
	require.NoError(t, err)
	o.Segment = seg
	s, err := Create(o)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, s.CheckStructure())
		require.NoError(t, s.Abandon())
	}()
	hits, all, taken := 0, 0, 0
	for i := range 15 * (room + 300) {
		k, cost := load(i)
		key := fmt.Sprint(k)
		all += cost
		r, err := s.Begin(RequestOptions{ID: "r"})
		require.NoError(t, err)
		if _, err := r.Lookup(key, 1); err == nil {
			hits += cost
		} else {
			if !spares {
				s.space.spares.begin(0)
				s.space.entries.begin(-1)
			}
			_, err := r.Put(key, make([]byte, 300), PutOptions{Cost: time.Duration(cost) * time.Millisecond})
			require.NoError(t, err)
			taken += s.space.spares.n + s.space.entries.n
		}
		require.NoError(t, r.Commit())
		r.Finish()
	}
	require.Equal(t, room > 64*sparesPart, taken > 0, "there are spares")
	return float64(hits) / float64(all)
}

// A spare is not taken if it is in use, was used, or is too small.
func TestSpareGoesOnlyWhileItIsCheap(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *Store, o *Object)
		need   int64
		taken  bool
	}{
		"nothing happened": {func(*testing.T, *Store, *Object) {}, 64, true},
		"leased": {func(t *testing.T, s *Store, o *Object) {
			r, err := s.Begin(RequestOptions{ID: "r"})
			require.NoError(t, err)
			t.Cleanup(r.Rollback)
			_, err = r.Lookup(o.Key(), 1)
			require.NoError(t, err)
		}, 64, false},
		"used": {func(t *testing.T, s *Store, o *Object) {
			for range 3 {
				r, err := s.Begin(RequestOptions{ID: "r"})
				require.NoError(t, err)
				_, err = r.Lookup(o.Key(), 1)
				require.NoError(t, err)
				r.Rollback()
			}
		}, 64, false},
		"evicted":      {func(t *testing.T, s *Store, o *Object) { _, err := s.Evict(o.Key()); require.NoError(t, err) }, 64, false},
		"pinned":       {func(t *testing.T, s *Store, o *Object) { _, err := s.Pin(o.Key()); require.NoError(t, err) }, 64, false},
		"another size": {func(*testing.T, *Store, *Object) {}, 128, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Create(Options{Name: "s", Dir: t.TempDir(), Size: 64 << 10})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Abandon()) })
			r, err := s.Begin(RequestOptions{ID: "put"})
			require.NoError(t, err)
			o, err := r.Put("k", make([]byte, 100), PutOptions{})
			require.NoError(t, err)
			r.Rollback()
			value, may := s.space.loss(o)
			require.True(t, may)
			s.space.spares.begin(64)
			s.space.spares.offer(o, value)
			s.space.spares.end(sparesShare, sparesShare*sparesPart)
			c.change(t, s, o)
			require.Equal(t, c.taken, s.space.spares.pick(&s.space, c.need, nil) == o)
			require.Nil(t, s.space.spares.pick(&s.space, c.need, idSet{o.chunk.id: {}}))
		})
	}
}

// The cheapest of those that were offered are kept, in order, and as many as the sample allows.
func TestSparesAreTheCheapest(t *testing.T) {
	var s spares
	s.begin(100)
	for _, v := range rand.New(rand.NewPCG(1, 1)).Perm(64) {
		s.offer(&Object{takes: 100}, float64(v))
	}
	s.offer(&Object{takes: 99}, -1)
	require.Equal(t, maxSpares, s.n)
	for i := range maxSpares {
		require.InDelta(t, i, s.all[i].value, 0)
	}
	s.end(3*sparesShare+1, 1<<20)
	require.Equal(t, 3, s.n)
	require.Nil(t, s.all[3].o, "an object that is gone must not be kept in memory")
	s.end(sparesShare-1, 1<<20)
	require.Zero(t, s.n, "a small sample leaves none")
	s.begin(100)
	s.offer(&Object{takes: 100}, 1)
	s.end(64, 64*sparesPart-1)
	require.Zero(t, s.n, "a sample that is a large part of all leaves none")
}
