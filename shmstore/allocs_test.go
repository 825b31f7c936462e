package shmstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// The allocations of a full store: the object and the reservation of a put, the request of Begin,
// and nothing else. A hit allocates nothing.
func TestAllocations(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the race detector and the checks of invariants allocate")
	}
	const objects, size = 1000, 1000
	s := benchStore(t, objects, size)
	var k keys
	fillStore(t, s, &k, 8*objects, size) // maps and tables have grown
	present := k.next()
	putOne(t, s, "r", present, size)
	_, err := s.Pin(present)
	require.NoError(t, err)

	k.left = k.more(1 << 14)
	require.Equal(t, 3.0, testing.AllocsPerRun(2000, func() { putOne(t, s, "r", k.next(), size) }), "Begin, Reserve, Commit of both, Finish")

	r := begin(t, s, "open")
	defer r.Rollback()
	require.Equal(t, 2.0, testing.AllocsPerRun(2000, func() {
		key := k.next()
		reserveOne(t, r, key, size)
		r.Drop(key)
	}), "Reserve, Commit")
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		if _, err := r.Lookup(present, 1); err != nil {
			t.Fatal(err)
		}
		r.Drop(present)
	}), "Lookup of one")
	require.Equal(t, 1.0, testing.AllocsPerRun(2000, func() {
		r, err := s.Begin(shmstore.RequestOptions{ID: "r"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := r.Lookup(present, 1); err != nil {
				t.Fatal(err)
			}
		}
		_ = r.Commit()
		r.Finish()
	}), "Begin, three hits, Commit, Finish")
	var again shmstore.Request
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		if err := again.BeginIn(s, shmstore.RequestOptions{ID: "r"}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := again.Lookup(present, 1); err != nil {
				t.Fatal(err)
			}
		}
		_ = again.Commit()
		again.Finish()
	}), "BeginIn, three hits, Commit, Finish")
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		if _, err := s.Stats(); err != nil {
			t.Fatal(err)
		}
	}), "Stats")
}

// A put that is refused, and statistics, look at as many objects in a store with a hundred times as
// many: at none.
func TestRefusedPutLooksAtNothing(t *testing.T) {
	for _, what := range []string{"bytes", "objects"} {
		t.Run(what, func(t *testing.T) {
			for _, n := range []int{100, 10_000} {
				o := shmstore.Options{Size: n*512 + 4096, MaxObjects: n}
				if what == "bytes" {
					o.MaxObjects = 2 * n
				}
				s := private(t, o)
				r := begin(t, s, "holds")
				defer r.Rollback()
				size := 512 - plainOverhead
				for _, key := range new(keys).more(n) {
					reserveOne(t, r, key, size)
				}
				if what == "bytes" {
					size = 1 << 14
				}
				refused := func() {
					_, err := r.Reserve("one more", size, shmstore.PutOptions{})
					require.ErrorIs(t, err, shmring.ErrFull)
				}
				refused() // the first may search
				before, err := s.Stats()
				require.NoError(t, err)
				for range 100 {
					refused()
				}
				after, err := s.Stats()
				require.NoError(t, err)
				require.Equal(t, before.Looked, after.Looked)
			}
		})
	}
}
