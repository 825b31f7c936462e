package objstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

func bytesItem(n int) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "x", Data: &serde.Tensor{DType: serde.DTypeUint8, Shape: []int{n}, Data: make([]byte, n)},
	}}}
}

func putLeased(t testing.TB, w *Writer, key string, n int) *Lease {
	t.Helper()
	r, err := w.ReserveWith(key, bytesItem(n), PutOptions{Note: []byte("note of " + key)})
	require.NoError(t, err)
	defer r.Discard()
	l, err := r.CommitLeased()
	require.NoError(t, err)
	return l
}

func smallStore(t testing.TB, version string) *store {
	return newStore(t, Options{RingSize: 900, MaxObjectSize: 700, Readers: 2, Generation: generation(t, version)})
}

func TestLeaseKeepsAnObjectThatWasRead(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := smallStore(t, g.Version)
			l := putLeased(t, s.Writer, "a", 300)
			require.Equal(t, "note of a", string(l.Note()))
			h, err := l.Issue()
			require.NoError(t, err)
			deliver(t, s, "a", h)

			_, err = s.Put("b", bytesItem(480))
			var full *FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, 1, full.Head.Leases)
			require.Contains(t, full.Error(), "leased")
			require.ErrorIs(t, s.Clear(), ErrBusy)
			require.ErrorIs(t, s.Close(), ErrBusy)

			l.Release()
			l.Release()
			_, err = l.Issue()
			require.ErrorIs(t, err, ErrInvalid)
			_, err = s.Put("b", bytesItem(480))
			require.NoError(t, err)
			require.False(t, s.Cached("a"))
		})
	}
}

// deliver reads a handle as every worker does: touch, then get.
func deliver(t testing.TB, s *store, key string, h Handle) {
	t.Helper()
	for _, r := range s.readers {
		require.NoError(t, r.Touch(context.Background(), key, h))
		v, err := r.Get(h, key)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
}

// Handles that are delivered one after the other balance in every generation;
// those that were taken back count as if they had never been.
func TestLeaseCountsBalance(t *testing.T) {
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
			l := putLeased(t, s.Writer, "a", 100)
			requireBalance()
			for range 3 {
				_, err := l.Issue()
				require.NoError(t, err)
			}
			l.TakeBack()
			l.TakeBack()
			requireBalance()
			for i := range 4 {
				other, err := s.Lease("a")
				require.NoError(t, err)
				unsent, err := s.Lease("a")
				require.NoError(t, err)
				h, err := other.Issue()
				require.NoError(t, err)
				for range i {
					_, err = unsent.Issue()
					require.NoError(t, err)
				}
				unsent.TakeBack()
				deliver(t, s, "a", h)
				requireBalance()
				other.Release()
				unsent.Release()
			}
			l.Release()
		})
	}
}

func TestLeaseOfAnAbsentKey(t *testing.T) {
	s := smallStore(t, "0.33.0")
	_, err := s.Lease("a")
	require.ErrorIs(t, err, ErrNotFound)
}

// Watch sees each key come and go once, in order.
func TestWatchSeesKeysComeAndGo(t *testing.T) {
	var seen []string
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 600, Readers: 1, Watch: func(c Change) {
		seen = append(seen, fmt.Sprint(c.Key, c.Present))
	}})
	for _, k := range []string{"a", "b", "c"} {
		l := putLeased(t, s.Writer, k, 300)
		l.Release() // never issued, so free at once
	}
	require.NoError(t, s.Clear())
	require.Equal(t, []string{"atrue", "btrue", "afalse", "bfalse", "ctrue", "cfalse"}, seen)
}
