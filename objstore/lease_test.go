package objstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

func bytesItem(n int) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "x", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: make([]byte, n)},
	}}}
}

// putHeld puts an object that a request of its own holds, without a use.
func putHeld(t testing.TB, s Store, key string, n int) request {
	t.Helper()
	r := begin(t, s, "of "+key)
	res, err := r.Request.Reserve(key, bytesItem(n), PutOptions{Note: []byte("note of " + key)})
	require.NoError(t, err)
	defer res.Discard()
	h, err := res.Commit()
	require.NoError(t, err)
	require.NoError(t, r.SetUses(h, 0))
	return r
}

func smallStore(t testing.TB, version string) *store {
	return newStore(t, Options{RingSize: 900, MaxObjectSize: 700, Readers: 2, Generation: generation(t, version)})
}

func TestRequestKeepsAnObjectThatWasRead(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := smallStore(t, g.Version)
			r := putHeld(t, s, "a", 300)
			_, note, err := r.Keep("a")
			require.NoError(t, err)
			require.Equal(t, "note of a", string(note))
			h, err := r.Lookup("a")
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			deliver(t, s, "a", h)

			_, err = s.Put("b", bytesItem(480))
			var full *HeadError
			require.ErrorAs(t, err, &full)
			require.Equal(t, 1, full.Leases)
			require.Contains(t, full.Error(), "leased")
			require.ErrorIs(t, s.Clear(), ErrBusy)
			require.ErrorIs(t, s.Close(), ErrBusy)

			r.Finish()
			r.Finish()
			_, err = r.Lookup("a")
			require.ErrorIs(t, err, ErrEnded)
			_, err = s.Put("b", bytesItem(480))
			require.NoError(t, err)
			require.False(t, s.Cached("a"))
		})
	}
}

// deliver reads a handle as every worker does: touch, then get.
func deliver(t testing.TB, s *store, key string, h serde.Address) {
	t.Helper()
	for _, r := range s.readers {
		require.NoError(t, r.Touch(context.Background(), key, h))
		v, err := r.Get(key, h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
}

// Handles that are delivered one after the other balance in every generation;
// those that were taken back count as if they had never been.
func TestCountsOfRequestsBalance(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := smallStore(t, g.Version)
			requireBalance := func() {
				st, err := s.State()
				require.NoError(t, err)
				for _, o := range st.Objects {
					require.Equal(t, o.Uses*int64(len(s.readers)), o.Reads, "%+v", o)
				}
			}
			first := putHeld(t, s, "a", 100)
			requireBalance()
			for range 3 {
				_, err := first.Lookup("a")
				require.NoError(t, err)
			}
			first.Drop("a")
			first.Drop("a")
			requireBalance()
			for i := range 4 {
				other, unsent := begin(t, s, "other"), begin(t, s, "unsent")
				h, err := other.Lookup("a")
				require.NoError(t, err)
				_, _, err = unsent.Keep("a")
				require.NoError(t, err)
				require.NoError(t, unsent.SetUses(h, i))
				unsent.Rollback()
				require.NoError(t, other.Commit())
				deliver(t, s, "a", h)
				requireBalance()
				other.Finish()
			}
			first.Rollback()
		})
	}
}

func TestLookupOfAnAbsentKey(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 900, MaxObjectSize: 700, Readers: 2})
			r := begin(t, s, "r")
			_, lookup := r.Lookup("a")
			_, _, keep := r.Keep("a")
			for _, err := range []error{lookup, keep} {
				var missing *shmstore.KeyError
				require.ErrorAs(t, err, &missing)
				require.Equal(t, shmstore.KeyError{Key: "a", Err: ErrNotFound}, *missing)
			}
			r.Rollback()
		})
	}
}

// What a request has dropped is as if it had never asked for it.
func TestDropGivesUpOneKey(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4000, MaxObjectSize: 700, Readers: 1})
			r := begin(t, s, "r")
			for _, key := range []string{"kept", "dropped"} {
				_, err := r.Put(key, bytesItem(300))
				require.NoError(t, err)
			}
			r.Drop("dropped")
			r.Drop("absent")
			require.Equal(t, []string{"kept"}, s.Holders()[0].Keys)
			st, err := s.State()
			require.NoError(t, err)
			for _, o := range st.Objects {
				require.Equal(t, map[string]int64{"kept": 1, "dropped": 0}[o.Key], o.Uses)
			}
			require.NoError(t, s.CheckStructure())
			require.NoError(t, r.Commit())
			r.Drop("kept") // too late
			require.Equal(t, []string{"kept"}, s.Holders()[0].Keys)
			r.Finish()
		})
	}
}

// Watch sees each key come and go once, in order.
func TestWatchSeesKeysComeAndGo(t *testing.T) {
	var seen []string
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 600, Readers: 1, Watch: func(c shmstore.Change) {
		seen = append(seen, fmt.Sprint(c.Key, c.Present))
	}})
	for _, k := range []string{"a", "b", "c"} {
		putHeld(t, s, k, 300).Rollback() // never used, so free at once
	}
	require.NoError(t, s.Clear())
	require.Equal(t, []string{"atrue", "btrue", "afalse", "bfalse", "ctrue", "cfalse"}, seen)
}
