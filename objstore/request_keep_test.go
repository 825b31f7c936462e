package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// What a request keeps stays without a use, for as long as the request is open.
func TestKeptObjectStaysWithoutAUse(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 4096, Readers: 1})
			maker := begin(t, s, "maker")
			r, err := maker.Request.Reserve("a", bytesItem(1000), PutOptions{Note: []byte("note of a")})
			require.NoError(t, err)
			made, err := r.Commit()
			require.NoError(t, err)

			keeper := begin(t, s, "keeper")
			_, _, err = keeper.Keep("absent")
			require.ErrorIs(t, err, ErrNotFound)
			h, note, err := keeper.Keep("a")
			require.NoError(t, err)
			require.Equal(t, made, h)
			require.Equal(t, "note of a", string(note))
			maker.Rollback()

			st, err := s.State()
			require.NoError(t, err)
			require.Zero(t, st.Objects[0].Uses)
			_, err = s.Put("b", bytesItem(3500))
			require.ErrorIs(t, err, ErrFull, "a must stay")
			require.ErrorIs(t, s.Close(), ErrBusy)
			require.ErrorContains(t, s.Close(), `request "keeper" (not sent`)
			require.ErrorIs(t, s.Clear(), ErrBusy)

			keeper.Rollback()
			_, _, err = keeper.Keep("a")
			require.ErrorIs(t, err, ErrEnded)
			require.ErrorIs(t, keeper.SetUses(h, 1), ErrEnded)
			hb, err := s.Put("b", bytesItem(3500))
			require.NoError(t, err)
			require.False(t, s.Cached("a"))
			s.readAll(t, hb, "b")
		})
	}
}

// Kept only, an object is not waited for after an Abort: nobody was sent its handle.
func TestAbortOfARequestThatOnlyKept(t *testing.T) {
	s := newPoolStore(t, Options{})
	maker := begin(t, s, "maker")
	_, err := maker.Put("a", bytesItem(10))
	require.NoError(t, err)
	r := begin(t, s, "r")
	_, _, err = r.Keep("a")
	require.NoError(t, err)
	require.NoError(t, r.Commit())
	maker.Rollback()
	r.Abort()
	st, err := s.State()
	require.NoError(t, err)
	require.Zero(t, st.Quarantined)
	require.Zero(t, st.Leases)
}

// A request that sends a handle n times waits for n reads of every reader, in every
// generation, whatever was set before.
func TestSetUsesBalances(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := smallStore(t, g.Version)
			first := begin(t, s, "first")
			h, err := first.Put("a", bytesItem(100))
			require.NoError(t, err)
			require.NoError(t, first.Commit())
			deliver(t, s, "a", h)
			first.Finish()
			for n := range 4 {
				r, unsent := begin(t, s, "r"), begin(t, s, "unsent")
				got, _, err := r.Keep("a")
				require.NoError(t, err)
				require.Equal(t, h, got)
				_, err = unsent.Lookup("a")
				require.NoError(t, err)
				require.NoError(t, unsent.SetUses(h, n), "up and down")
				for _, uses := range []int{3, 0, 1, n} {
					require.NoError(t, r.SetUses(h, uses))
				}
				require.NoError(t, r.Commit())
				unsent.Rollback()
				for range n {
					deliver(t, s, "a", h)
				}
				st, err := s.State()
				require.NoError(t, err)
				require.Equal(t, st.Objects[0].Uses*int64(len(s.readers)), st.Objects[0].Reads, "%d uses", n)
				r.Finish()
			}
		})
	}
}

func TestSetUsesRefuses(t *testing.T) {
	s := newPoolStore(t, Options{})
	r, other := begin(t, s, "r"), begin(t, s, "other")
	h, err := r.Put("a", bytesItem(10))
	require.NoError(t, err)
	uses := func() int64 {
		st, err := s.State()
		require.NoError(t, err)
		return st.Objects[0].Uses
	}
	err = other.SetUses(h, 1)
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, "not of an object of request other")
	elsewhere := h
	elsewhere.Address += 64
	require.ErrorIs(t, r.SetUses(elsewhere, 1), errInvalid)
	err = r.SetUses(h, -1)
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, `-1 uses of key "a"`)
	require.ErrorIs(t, r.SetUses(h, 1<<31), ErrFull)
	require.EqualValues(t, 1, uses(), "what is refused changes nothing")
	require.NoError(t, r.Commit())
	require.ErrorIs(t, r.SetUses(h, 2), ErrEnded)
	r.Finish()
	other.Rollback()
}

// A request sees what the workers will, also when the chunk is not what was written.
func TestStoredOfARequest(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := smallStore(t, g.Version)
			r, other := begin(t, s, "r"), begin(t, s, "other")
			h, err := r.Put("a", bytesItem(300))
			require.NoError(t, err)
			v, err := r.Stored(h)
			require.NoError(t, err)
			require.Equal(t, bytesItem(300).Elems, v.(*serde.Item).Elems)
			_, err = other.Stored(h)
			require.ErrorIs(t, err, errInvalid)
			require.ErrorContains(t, err, "not of an object of request other")
			other.Rollback()

			if g.Signed {
				forged := h
				forged.Signature[31] ^= 1
				_, err = r.Stored(forged)
				require.ErrorIs(t, err, ErrBadSignature)
				forged.Signature = serde.Signature{}
				_, err = r.Stored(forged)
				require.ErrorIs(t, err, ErrBadSignature)
				require.ErrorContains(t, err, "has no signature")
			}
			chunk := s.Segment().Ring()[h.Address:]
			for at, want := range map[int]error{0: ErrStale, 4: ErrCorrupt, 7: ErrCorrupt, 12: ErrCorrupt} {
				chunk[at] ^= 0x7f
				_, err = r.Stored(h)
				require.ErrorIs(t, err, want, "byte %d", at)
				chunk[at] ^= 0x7f
			}
			require.NoError(t, r.Commit())
			_, err = r.Stored(h)
			require.NoError(t, err, "also after it was sent")
			deliver(t, s, "a", h)
			r.Finish()
			_, err = r.Stored(h)
			require.ErrorIs(t, err, ErrEnded)
		})
	}
}

// What Stored returned stays mapped until the owner of the request ends it, also when
// the store is abandoned or the readers are reset before.
func TestStoredStaysMapped(t *testing.T) {
	for name, test := range map[string]struct {
		committed bool
		abandoned bool
		end       func(Request)
	}{
		"Rollback after Abandon": {false, true, Request.Rollback},
		"Finish after Abandon":   {true, true, Request.Finish},
		"Finish after a reset":   {true, false, Request.Finish},
		"Abort after a reset":    {true, false, Request.Abort},
	} {
		t.Run(name, func(t *testing.T) {
			w, dir := inFolder(t, pool)
			r := begin(t, w, "r")
			h, err := r.Put("a", image(1000, 7))
			require.NoError(t, err)
			v, err := r.Stored(h)
			require.NoError(t, err)
			data := v.(*serde.Item).Elems[0].Data.(*serde.Tensor).Data
			if test.committed {
				require.NoError(t, r.Commit())
			}
			if test.abandoned {
				require.NoError(t, w.Abandon())
			} else {
				require.NoError(t, w.ResetReaders(1))
				require.ErrorIs(t, w.Close(), ErrBusy, "the value is a view")
			}
			if test.committed {
				r.Rollback() // deferred, and too late
			}
			require.True(t, mapped(t, dir))
			require.Equal(t, byte(7), data[999])
			test.end(r.Request)
			test.end(r.Request)
			require.NoError(t, w.Close())
			require.False(t, mapped(t, dir))
			requireEmpty(t, dir)
		})
	}
}
