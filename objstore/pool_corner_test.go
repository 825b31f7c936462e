package objstore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// read lets one reader read a handle.
func read(t testing.TB, r *Reader, h serde.Address, key string) {
	t.Helper()
	v, err := r.Get(key, h)
	require.NoError(t, err)
	require.NoError(t, v.Release())
}

// Reads that are missing of one request must not be taken for the reads that
// another has had.
func TestTTLDoesNotEndWhileAChildReads(t *testing.T) {
	for name, other := range map[string]func(s *store){
		"nothing else": func(*store) {},
		"rolled back ones": func(s *store) {
			for _, id := range []string{"b", "c"} {
				r := begin(t, s, id)
				_, err := r.Lookup("x")
				require.NoError(t, err)
				r.Rollback()
			}
		},
		"one that is finished unread": func(s *store) {
			r := begin(t, s, "b")
			_, err := r.Lookup("x")
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			r.Finish()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPoolStore(t, Options{Readers: 1, QuarantineTTL: time.Nanosecond})
			a := begin(t, s, "a")
			h, err := a.Put("x", bytesItem(500))
			require.NoError(t, err)
			_, err = a.Lookup("x") // for its second child
			require.NoError(t, err)
			require.NoError(t, a.Commit())
			read(t, s.readers[0], h, "x")
			a.Abort()
			time.Sleep(time.Millisecond)
			other(s)
			require.NotZero(t, used(t, s.writer))
			read(t, s.readers[0], h, "x")
			s.Fence().Passed()
			require.Zero(t, used(t, s.writer))
		})
	}
}

func TestTTLDoesNotEndWhatAnAdoptedRequestReads(t *testing.T) {
	w, r, o := realPool(t, Options{QuarantineTTL: -1})
	var h serde.Address
	var err error
	for range 2 {
		h, err = w.Put("x", image(500, 1))
		if err != nil {
			h, err = w.Lookup("x")
		}
		require.NoError(t, err)
	}
	read(t, r, h, "x")
	require.NoError(t, w.Detach())
	o.QuarantineTTL = time.Nanosecond
	w, a, err := adoptPool(o)
	require.NoError(t, err)
	require.Equal(t, 1, a.InUse)
	req := begin(t, w, "r")
	_, err = req.Lookup("x")
	require.NoError(t, err)
	require.NoError(t, req.Commit())
	read(t, r, h, "x")
	req.Abort()
	time.Sleep(time.Millisecond)
	ok, err := w.Evict("x")
	require.NoError(t, err)
	require.False(t, ok, "the second handle of the dead writer may be under way")
	w.Fence().Passed()
	require.Zero(t, used(t, w))
	require.NoError(t, w.Close())
}

// A fence that passes between two aborts does not keep the time from ending the
// second.
func TestTTLEndsAfterAPartialFence(t *testing.T) {
	s := newPoolStore(t, Options{QuarantineTTL: time.Nanosecond, Rereads: true})
	abort := func(id string) {
		r := begin(t, s, id)
		_, err := r.Lookup("x")
		if err != nil {
			_, err = r.Put("x", bytesItem(500))
		}
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		r.Abort()
	}
	abort("a")
	f := s.Fence()
	abort("b")
	f.Passed()
	require.Eventually(t, func() bool { return used(t, s.writer) == 0 }, time.Minute, time.Millisecond)
}

func TestFencesThatNeverPassKeepLittle(t *testing.T) {
	s := newPoolStore(t, Options{QuarantineTTL: -1})
	for i := range 1000 {
		s.Fence()
		r := begin(t, s, fmt.Sprint(i))
		_, err := r.Lookup("x")
		if err != nil {
			_, err = r.Put("x", bytesItem(500))
		}
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		r.Abort()
	}
	st, err := s.Stats()
	require.NoError(t, err)
	require.Equal(t, 1, st.QuarantinedObjects)
	s.Fence().Passed()
	require.Zero(t, used(t, s.writer))
}

func TestAClosedPoolHasNoKeys(t *testing.T) {
	w, _, _ := realPool(t, Options{})
	unleased(t, w, "a", 100, 1)
	require.NoError(t, w.Close())
	require.False(t, w.Cached("a"))
	require.False(t, w.Remove("a"))
	_, err := w.Evict("a")
	require.ErrorIs(t, err, errClosed)
	require.ErrorIs(t, w.ResetReaders(0), errClosed)
	w.Fence().Passed()
}

// A sidecar that is cut short must not make handles stale.
func TestTruncatedSidecarLeavesHandlesGood(t *testing.T) {
	w, r, o := realPool(t, Options{})
	handles := map[string]serde.Address{}
	for i := range 3 {
		key := fmt.Sprint(i)
		handles[key] = unleased(t, w, key, 4000, byte(i))
	}
	require.NoError(t, r.Close())
	require.NoError(t, os.Truncate(filepath.Join(o.Dir, o.Name+".ctl"), 4096))
	_, err := w.Put("more", image(9000, 9))
	require.ErrorIs(t, err, ErrCorrupt)
	_ = w.CheckStructure()
	for key, h := range handles {
		require.True(t, w.Cached(key))
		c, err := shmring.ReadChunk(w.Segment().Ring(), h.Address)
		require.NoError(t, err)
		require.Equal(t, h.ID, c.ID, "key %s", key)
	}
	require.NoError(t, w.Detach())
	_, err = w.Lookup("0")
	require.ErrorIs(t, err, errClosed)
	require.NoError(t, os.Remove(filepath.Join(o.Dir, o.Name)))
	require.NoError(t, os.Remove(filepath.Join(o.Dir, o.Name+".ctl")))
}

func TestTruncatedPoolDoesNotPanic(t *testing.T) {
	w, _, o := realPool(t, Options{})
	unleased(t, w, "a", 4000, 1)
	require.NoError(t, os.Truncate(filepath.Join(o.Dir, o.Name), 0))
	for range 3 {
		_, err := w.Put("b", image(4000, 2))
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = w.State()
		require.NoError(t, err)
		_, _ = w.FreeUnused()
		w.Remove("a")
	}
	require.NoError(t, w.Close())
}

func TestMaxObjectsBesideAViewedObject(t *testing.T) {
	w, r, _ := realPool(t, Options{MaxObjects: 4})
	h := unleased(t, w, "viewed", 10, 1)
	v, err := r.Get("viewed", h)
	require.NoError(t, err)
	for i := range 20 {
		unleased(t, w, fmt.Sprint(i), 10, 2)
	}
	require.True(t, w.Cached("viewed"))
	require.NoError(t, v.Release())
	require.NoError(t, w.Close())
}

func TestSetCostAfterCommitChangesNothing(t *testing.T) {
	s := newPoolStore(t, Options{})
	r := begin(t, s, "r")
	res, err := r.Reserve("a", bytesItem(300))
	require.NoError(t, err)
	_, err = res.Commit()
	require.NoError(t, err)
	before := append([]byte(nil), s.mem...)
	res.SetCost(time.Hour)
	require.Equal(t, before, s.mem)
	r.Rollback()
}

func TestQuotaThatIsTooSmallEvictsNothing(t *testing.T) {
	s := newPoolStore(t, Options{Quota: 4096})
	for i := range 3 {
		r := begin(t, s, "r")
		res, err := r.Request.Reserve(fmt.Sprint(i), bytesItem(700), PutOptions{Tenant: "t"})
		require.NoError(t, err)
		_, err = res.Commit()
		require.NoError(t, err)
		r.Rollback()
	}
	_, err := s.steps.Reserve("big", bytesItem(5000), PutOptions{Tenant: "t"})
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "quota")
	require.Equal(t, 3, s.Len())
}

func TestNewWriterOverASidecarInUse(t *testing.T) {
	w, _, o := realPool(t, Options{})
	unleased(t, w, "a", 100, 1)
	require.NoError(t, w.Detach())
	seg, err := segment.Adopt(o.segment())
	require.NoError(t, err)
	for _, k := range kinds {
		_, err = k.over(seg, o)
		require.ErrorIs(t, err, errInvalid)
		require.ErrorContains(t, err, "adopt")
	}
	require.NoError(t, seg.Destroy())
}

func TestUsesOfChildrenCountEach(t *testing.T) {
	s := newPoolStore(t, Options{Generation: generation(t, "0.31.0")})
	r := putHeld(t, s, "a", 100)
	h, _, err := r.Keep("a")
	require.NoError(t, err)
	require.NoError(t, r.SetUses(h, 3))
	err = r.SetUses(h, 1<<40)
	require.ErrorIs(t, err, ErrFull)
	require.ErrorContains(t, err, "overflow")
	require.NoError(t, r.Commit())
	for range 3 {
		require.Len(t, s.readers, 2)
		deliver(t, s, "a", h)
	}
	r.Abort()
	require.Zero(t, used(t, s.writer), "three handles of one, two and two reads each were read")

	unsent := putHeld(t, s, "b", 100)
	hb, _, err := unsent.Keep("b")
	require.NoError(t, err)
	require.NoError(t, unsent.SetUses(hb, 2))
	unsent.Rollback()
	require.Zero(t, used(t, s.writer), "nobody reads what was not sent")
}

// A touch protects until the next get_cached, or until it is ended; requests leave it.
func TestGetCachedEndsTheTouch(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 1000, Readers: 1, Generation: generation(t, "0.32.0")})
			for i, end := range []func(key string){
				func(key string) {
					h, err := s.Lookup(key)
					require.NoError(t, err)
					s.readAll(t, h, key)
				},
				s.Untouch,
				func(string) { s.ReleaseTouches() },
			} {
				key := fmt.Sprint(i)
				putHeld(t, s, key, 100).Rollback()
				require.NoError(t, s.Touch(key))
				r := begin(t, s, "r")
				_, _, err := r.Keep(key)
				require.NoError(t, err)
				r.Rollback()
				_, err = s.FreeUnused()
				require.NoError(t, err)
				require.True(t, s.Cached(key))
				end(key)
				s.Fence().Passed()
				_, err = s.FreeUnused()
				require.NoError(t, err)
				require.False(t, s.Cached(key))
			}
		})
	}
}

func TestReservationOfARequestIsCommittedByIt(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 1000, Readers: 1})
			r := begin(t, s, "r")
			res, err := r.Reserve("a", bytesItem(10))
			require.NoError(t, err)
			_, err = res.Commit()
			require.NoError(t, err)
			require.Equal(t, []string{"a"}, s.Holders()[0].Keys)
			r.Rollback()
			late := begin(t, s, "late")
			res, err = late.Reserve("b", bytesItem(10))
			require.NoError(t, err)
			late.Rollback()
			_, err = res.Commit()
			require.ErrorIs(t, err, ErrEnded)
			require.ErrorContains(t, err, "discard the reservation")
			require.False(t, s.Cached("b"))
			res.Discard()
		})
	}
}

// The newest engines may read again, so by default only a fence ends what was
// aborted.
func TestCountsAreNotTrustedByDefaultWhereAddressesAreReread(t *testing.T) {
	for version, evicted := range map[string]bool{"0.33.0": false, "0.20.2": true} {
		g := generation(t, version)
		seg, err := segment.Private(make([]byte, 4096+g.DataOffset), segment.Options{RingSize: 4096, DataOffset: g.DataOffset})
		require.NoError(t, err)
		w, err := pool.over(seg, Options{Generation: g, RingSize: 4096, MaxObjectSize: 4096, Readers: 1})
		require.NoError(t, err)
		r := begin(t, w, "r")
		_, err = r.Put("a", bytesItem(100))
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		w.change(t, "a", func(_ *poolObject, reads []byte) { mem.Store32(reads, 1) }) // as its reader does
		r.Abort()
		ok, err := w.Evict("a")
		require.NoError(t, err)
		require.Equal(t, evicted, ok, version)
		w.Fence().Passed()
		require.Zero(t, used(t, w))
		require.NoError(t, w.Close())
	}
	require.ErrorIs(t, Options{RingSize: 100, Readers: 1, Rereads: true, TrustCounts: true}.Validate(), errInvalid)
}

func TestKeysOfAPoolAreUTF8(t *testing.T) {
	r := begin(t, newPoolStore(t, Options{}), "r")
	_, err := r.Reserve("caf\xe9", bytesItem(10))
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "is not UTF-8")
	r.Rollback()
}
