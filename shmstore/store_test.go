package shmstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// inFolder creates a store in a folder of the test. Its structure is verified when the
// test ends, and nothing is left of it.
func inFolder(t testing.TB, o shmstore.Options) (*shmstore.Store, shmstore.Options) {
	t.Helper()
	o.Name, o.Dir = "s", t.TempDir()
	if o.Size == 0 {
		o.Size = 64 << 10
	}
	s, err := shmstore.Create(o)
	require.NoError(t, err)
	ends(t, s)
	return s, o
}

func ends(t testing.TB, s *shmstore.Store) {
	t.Helper()
	t.Cleanup(func() {
		assert.NoError(t, s.CheckStructure())
		assert.NoError(t, s.Abandon())
	})
}

// private makes a store with a sidecar over private memory.
func private(t testing.TB, o shmstore.Options) *shmstore.Store {
	t.Helper()
	seg, err := segment.Private(nil, o.SegmentOptions())
	require.NoError(t, err)
	o.Segment = seg
	s, err := shmstore.Create(o)
	require.NoError(t, err)
	ends(t, s)
	return s
}

func begin(t testing.TB, s *shmstore.Store, id string) *shmstore.Request {
	t.Helper()
	r, err := s.Begin(shmstore.RequestOptions{ID: id})
	require.NoError(t, err)
	return r
}

// put puts n bytes b, which a request keeps.
func put(t testing.TB, r *shmstore.Request, key string, n int, b byte) *shmstore.Object {
	t.Helper()
	o, err := r.Put(key, bytes.Repeat([]byte{b}, n), shmstore.PutOptions{})
	require.NoError(t, err)
	return o
}

// idle puts n bytes b, which nobody keeps.
func idle(t testing.TB, s *shmstore.Store, key string, n int, b byte) *shmstore.Object {
	t.Helper()
	r := begin(t, s, "of "+key)
	defer r.Rollback()
	return put(t, r, key, n, b)
}

// cached reports whether a key is in a store.
func cached(s *shmstore.Store, key string) bool {
	_, err := s.Find(key)
	return err == nil
}

// chunks returns the number of objects and reservations in a store.
func chunks(t testing.TB, s *shmstore.Store) int {
	t.Helper()
	st, err := s.Inspect(nil)
	require.NoError(t, err)
	return st.Chunks
}

func TestPayloadsAreFoundByOffsetAndLength(t *testing.T) {
	for _, align := range []int{0, 64, 128, 512, 4096} {
		for _, offset := range []int{0, 32, 100} {
			t.Run(fmt.Sprintf("align %d, %d bytes in front", align, offset), func(t *testing.T) {
				s, o := inFolder(t, shmstore.Options{Align: align, DataOffset: offset, Size: 128 << 10})
				other, err := segment.Attach(segment.Options{Name: o.Name, Dir: o.Dir, RingSize: o.Size, DataOffset: offset, ReadOnly: true})
				require.NoError(t, err)
				r := begin(t, s, "r")
				for i, n := range []int{0, 1, 63, 64, 4000, 4096, 10_000} {
					h := put(t, r, fmt.Sprint(n), n, byte(i)).Handle()
					require.EqualValues(t, n, h.Length)
					require.Zero(t, h.Offset%uint64(max(align, 64)))
					require.Equal(t, bytes.Repeat([]byte{byte(i)}, n), other.Bytes()[h.Offset:h.Offset+h.Length])
				}
				require.NoError(t, s.CheckStructure())
				r.Rollback()
				require.NoError(t, other.Close())
			})
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := shmstore.Options{Size: 1 << 16}
	s := private(t, good)
	require.NoError(t, s.CheckStructure())
	for name, change := range map[string]func(*shmstore.Options){
		"Align":         func(o *shmstore.Options) { o.Align = 32 },
		"Align 96":      func(o *shmstore.Options) { o.Align = 96 },
		"Align 8192":    func(o *shmstore.Options) { o.Align = 8192 },
		"Size":          func(o *shmstore.Options) { o.Size = 8 },
		"DataOffset":    func(o *shmstore.Options) { o.DataOffset = -1 },
		"MaxObjectSize": func(o *shmstore.Options) { o.MaxObjectSize = 1<<16 + 1 },
		"MaxObjects":    func(o *shmstore.Options) { o.MaxObjects = -1 },
		"FirstID":       func(o *shmstore.Options) { o.FirstID = 1 << 31 },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			change(&o)
			_, err := shmstore.Create(o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, name)
		})
	}
}

func TestRequestKeepsWhatItHas(t *testing.T) {
	s, _ := inFolder(t, shmstore.Options{Size: 8 << 10})
	r := begin(t, s, "r")
	_, err := s.Begin(shmstore.RequestOptions{ID: "r"})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, `"r" is open`)
	put(t, r, "kept", 1000, 7)
	require.NoError(t, r.Commit())
	for i := range 50 {
		idle(t, s, fmt.Sprint(i), 3000, 9)
		require.NoError(t, s.CheckStructure())
	}
	other := begin(t, s, "other")
	o, err := other.Lookup("kept", 0)
	require.NoError(t, err)
	require.Equal(t, "kept", o.Key())
	r.Finish()
	require.True(t, r.Ended())
	gone, err := s.Evict("kept")
	require.NoError(t, err)
	require.Empty(t, gone, "the other has it")
	b, err := other.Bytes(o)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{7}, 1000), b)
	other.Rollback()
	gone, err = s.Evict("kept")
	require.NoError(t, err)
	require.NotEmpty(t, gone)
	_, err = begin(t, s, "late").Lookup("kept", 1)
	var missing *shmstore.KeyError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, shmstore.KeyError{Key: "kept", Err: shmstore.ErrNotFound}, *missing)
}

func TestRequestsThatHaveEndedTakeNothing(t *testing.T) {
	s := private(t, shmstore.Options{Size: 8 << 10})
	keep := begin(t, s, "keep")
	o := put(t, keep, "a", 10, 1)
	for name, end := range map[string]func(r *shmstore.Request){
		"rolled back": (*shmstore.Request).Rollback,
		"finished":    func(r *shmstore.Request) { _ = r.Commit(); r.Finish() },
		"aborted":     func(r *shmstore.Request) { _ = r.Commit(); r.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, s, name)
			end(r)
			end(r)
			_, lookup := r.Lookup("a", 1)
			_, hold := r.HoldID(o.Handle().ID)
			_, reserve := r.Reserve("b", 10, shmstore.PutOptions{})
			_, object := r.Object(o.Handle().ID)
			_, b := r.Bytes(o)
			for _, err := range []error{lookup, hold, reserve, object, b, r.Commit(), r.SetUses(o, 1), r.SetDeadline(time.Now())} {
				require.ErrorIs(t, err, shmstore.ErrEnded)
				require.ErrorContains(t, err, name)
			}
			r.Drop("a")
		})
	}
	st, err := s.Stats()
	require.NoError(t, err)
	require.Equal(t, 1, st.Requests)
	require.Zero(t, st.Misused)
	keep.Finish()
	keep.Abort()
	st, err = s.Stats()
	require.NoError(t, err)
	require.Equal(t, 2, st.Misused)
	require.False(t, keep.Ended())
	keep.Rollback()
}

// A request that was not sent is undone at its deadline; one that was is in quarantine.
func TestDeadlineEndsARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1})
		start := func(id string) *shmstore.Request {
			r, err := s.Begin(shmstore.RequestOptions{ID: id, Deadline: time.Now().Add(time.Minute)})
			require.NoError(t, err)
			put(t, r, id, 1000, 1)
			return r
		}
		open, sent, longer, forever := start("open"), start("sent"), start("longer"), start("forever")
		require.NoError(t, sent.Commit())
		require.NoError(t, longer.SetDeadline(time.Now().Add(time.Hour)))
		require.NoError(t, forever.SetDeadline(time.Time{}))
		time.Sleep(time.Minute - 1)
		require.False(t, open.Ended())
		time.Sleep(time.Nanosecond)
		require.NoError(t, s.CheckStructure())
		for id, r := range map[string]*shmstore.Request{"open": open, "sent": sent} {
			require.True(t, r.Ended())
			_, err := r.Lookup("longer", 1)
			require.ErrorIs(t, err, shmstore.ErrEnded)
			require.ErrorContains(t, err, "deadline of "+id)
			r.Rollback()
			r.Finish()
		}
		freed, err := s.Evict()
		require.NoError(t, err)
		require.Len(t, freed, 1, "what was not sent")
		require.True(t, cached(s, "sent"))
		s.Fence().Passed()
		freed, err = s.Evict()
		require.NoError(t, err)
		require.Len(t, freed, 1, "what was sent")
		time.Sleep(time.Hour)
		require.True(t, longer.Ended())
		require.False(t, forever.Ended())
		again := begin(t, s, "open") // its id is free
		again.Rollback()
		forever.Rollback()
	})
}

// Who waits for room gets what a request had whose deadline passes meanwhile.
func TestDeadlineMakesRoomForWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 8 << 10})
		r, err := s.Begin(shmstore.RequestOptions{ID: "r", Deadline: time.Now().Add(time.Second)})
		require.NoError(t, err)
		put(t, r, "a", 6000, 1)
		waits := begin(t, s, "waits")
		defer waits.Rollback()
		_, err = waits.Put("b", make([]byte, 6000), shmstore.PutOptions{})
		var full *shmstore.FullError
		require.ErrorAs(t, err, &full)
		require.Greater(t, full.Leased, int64(6000))
		began := time.Now()
		_, err = waits.Put("b", make([]byte, 6000), shmstore.PutOptions{Wait: context.Background()})
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), time.Second)
	})
}

func TestFenceEndsWhatWasAbortedBefore(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1})
	abort := func(key string) {
		r := begin(t, s, key)
		put(t, r, key, 1000, 1)
		require.NoError(t, r.Commit())
		r.Abort()
	}
	abort("before")
	f := s.Fence()
	abort("behind")
	_, err := s.Evict()
	require.NoError(t, err)
	require.True(t, cached(s, "before") && cached(s, "behind"))
	f.Passed()
	freed, err := s.Evict()
	require.NoError(t, err)
	require.Len(t, freed, 1)
	require.False(t, cached(s, "before"))
	require.True(t, cached(s, "behind"))
	st, err := s.Inspect(func(_ *shmstore.Object, o shmstore.ObjectState) {
		require.Equal(t, "behind", o.Key)
		require.True(t, o.Quarantined)
	})
	require.NoError(t, err)
	require.Equal(t, 1, st.QuarantinedObjects)
	require.NoError(t, s.ResetReaders(0))
	freed, err = s.Evict()
	require.NoError(t, err)
	require.Len(t, freed, 1)
	require.ErrorIs(t, s.ResetReaders(-1), fs.ErrInvalid)
	shmstore.Fence{}.Passed() // nothing
}

// Without counts a long time is proof enough.
func TestQuarantineEndsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: time.Minute})
		r := begin(t, s, "r")
		put(t, r, "a", 1000, 1)
		require.NoError(t, r.Commit())
		r.Abort()
		time.Sleep(time.Minute - 1)
		gone, err := s.Evict("a")
		require.NoError(t, err)
		require.Empty(t, gone)
		time.Sleep(time.Nanosecond)
		gone, err = s.Evict("a")
		require.NoError(t, err)
		require.NotEmpty(t, gone)
	})
}

func TestPinKeepsAPayload(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{Size: 8 << 10})
	ok, err := s.Pin("absent")
	require.NoError(t, err)
	require.False(t, ok)
	idle(t, s, "a", 1000, 1)
	idle(t, s, "b", 1000, 2)
	for range 2 {
		for _, key := range []string{"a", "b"} {
			ok, err = s.Pin(key)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	r := begin(t, s, "r")
	_, err = r.Lookup("a", 1)
	require.NoError(t, err)
	r.Rollback()
	for i := range 20 {
		idle(t, s, fmt.Sprint(i), 3000, 9)
	}
	require.True(t, cached(s, "a"), "a look-up does not end the pin")
	s.Unpin("a")
	s.Unpin("absent")
	freed, err := s.Evict()
	require.NoError(t, err)
	require.NotEmpty(t, freed)
	require.False(t, cached(s, "a"))
	require.True(t, cached(s, "b"))
	s.Unpin()
	gone, err := s.Evict("b")
	require.NoError(t, err)
	require.NotEmpty(t, gone)

	idle(t, s, "c", 1000, 3)
	_, err = s.Pin("c")
	require.NoError(t, err)
	require.NoError(t, s.Detach())
	s, _, err = shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	gone, err = s.Evict("c")
	require.NoError(t, err)
	require.NotEmpty(t, gone, "a pin is one of its process")
}

func TestRemoveFreesTheKey(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10})
	r := begin(t, s, "r")
	old := put(t, r, "a", 1000, 1)
	require.True(t, s.Remove("a"))
	require.False(t, s.Remove("a"))
	next := idle(t, s, "a", 2000, 2)
	require.Greater(t, next.Handle().ID, old.Handle().ID)
	again := begin(t, s, "again")
	held, err := again.HoldID(old.Handle().ID)
	require.NoError(t, err)
	require.Same(t, old, held)
	r.Rollback()
	b, err := again.Bytes(old)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{1}, 1000), b)
	again.Rollback()
	_, err = begin(t, s, "late").HoldID(old.Handle().ID)
	require.ErrorIs(t, err, shmstore.ErrStale, "it went with who held it")
	require.ErrorContains(t, err, fmt.Sprintf("id %d", old.Handle().ID))
}

func TestDropGivesUpOneKey(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10})
	r := begin(t, s, "r")
	a := put(t, r, "a", 1000, 1)
	put(t, r, "b", 1000, 2)
	r.Drop("b")
	_, err := r.Object(a.Handle().ID)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, s.Holders()[0].Keys)
	gone, err := s.Evict("b")
	require.NoError(t, err)
	require.NotEmpty(t, gone)
	require.NoError(t, r.Commit())
	r.Drop("a") // too late
	gone, err = s.Evict("a")
	require.NoError(t, err)
	require.Empty(t, gone)
	r.Finish()
}

func TestClear(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10})
	r := begin(t, s, "r")
	res, err := r.Reserve("a", 100, shmstore.PutOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, s.Clear(), segment.ErrBusy)
	require.ErrorContains(t, s.Clear(), "1 reservations")
	o, err := res.Commit(1)
	require.NoError(t, err)
	require.ErrorContains(t, s.Clear(), "1 leases")
	require.NoError(t, r.Commit())
	r.Abort()
	idle(t, s, "b", 100, 1)
	_, err = s.Pin("b")
	require.NoError(t, err)
	require.NoError(t, s.Clear())
	require.False(t, cached(s, "a") || cached(s, "b"))
	require.Equal(t, 1, chunks(t, s), "what was aborted waits for the fence")
	s.Fence().Passed()
	require.Zero(t, chunks(t, s))
	require.Greater(t, idle(t, s, "a", 100, 1).Handle().ID, o.Handle().ID, "ids go on")
}

func TestReservations(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10, MaxObjectSize: 8000})
	r := begin(t, s, "r")
	for what, f := range map[string]func() error{
		"empty":  func() error { _, err := r.Reserve("", 10, shmstore.PutOptions{}); return err },
		"UTF-8":  func() error { _, err := r.Reserve("caf\xe9", 10, shmstore.PutOptions{}); return err },
		"-1":     func() error { _, err := r.Reserve("a", -1, shmstore.PutOptions{}); return err },
		"is not": func() error { _, err := r.Put("caf\xe9", nil, shmstore.PutOptions{}); return err },
	} {
		require.ErrorIs(t, f(), fs.ErrInvalid)
		require.ErrorContains(t, f(), what)
	}
	_, err := r.Reserve("a", 8001, shmstore.PutOptions{})
	var large *shmstore.TooLargeError
	require.ErrorAs(t, err, &large)
	require.Equal(t, &shmstore.TooLargeError{Size: 8001, Limit: 8000}, large)

	res, err := r.Reserve("a", 1000, shmstore.PutOptions{Note: []byte("note"), Tenant: "t", Cost: time.Second})
	require.NoError(t, err)
	require.Len(t, res.Bytes(), 1000)
	require.False(t, cached(s, "a"))
	_, err = begin(t, s, "other").Reserve("a", 10, shmstore.PutOptions{})
	var exists *shmstore.KeyError
	require.ErrorAs(t, err, &exists)
	require.Equal(t, &shmstore.KeyError{Key: "a", Err: shmstore.ErrKeyExists, Reserved: true}, exists)
	copy(res.Bytes(), "payload")
	res.SetCost(time.Minute)
	o, err := res.Commit(1)
	require.NoError(t, err)
	require.Equal(t, "note", string(o.Note()))
	require.Same(t, res.Object(), o)
	_, err = res.Commit(1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "ended already")
	res.Discard() // nothing
	_, err = r.Reserve("a", 10, shmstore.PutOptions{})
	require.ErrorAs(t, err, &exists)
	require.Equal(t, &shmstore.KeyError{Key: "a", Err: shmstore.ErrKeyExists}, exists)

	for range 100 { // what was given up leaves nothing behind
		res, err := r.Reserve("b", 7000, shmstore.PutOptions{})
		require.NoError(t, err)
		res.Discard()
		res.Discard()
		_, err = res.Commit(1)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	res, err = r.Reserve("late", 10, shmstore.PutOptions{})
	require.NoError(t, err)
	r.Rollback()
	_, err = res.Commit(1)
	require.ErrorIs(t, err, shmstore.ErrEnded)
	res.Discard()
	require.False(t, cached(s, "late"))
}

func TestFullStoreNamesWhatIsInTheWay(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10, MaxObjects: 6, Quotas: map[string]int64{"small": 2048}})
	r := begin(t, s, "r")
	put(t, r, "leased", 3000, 1)
	aborted := begin(t, s, "aborted")
	put(t, aborted, "quarantined", 2000, 1)
	require.NoError(t, aborted.Commit())
	aborted.Abort()
	res, err := r.Reserve("reserved", 4000, shmstore.PutOptions{})
	require.NoError(t, err)
	_, err = r.Put("large", make([]byte, 9000), shmstore.PutOptions{})
	var full *shmstore.FullError
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, shmring.ErrFull)
	require.Greater(t, full.Leased, int64(3000))
	require.Greater(t, full.Quarantined, int64(2000))
	require.Greater(t, full.Reserved, int64(4000))
	require.ErrorContains(t, err, "PutOptions.Wait")
	res.Discard()

	_, err = r.Put("t1", make([]byte, 1500), shmstore.PutOptions{Tenant: "small"})
	require.NoError(t, err)
	_, err = r.Put("t2", make([]byte, 1500), shmstore.PutOptions{Tenant: "small"})
	full = nil
	require.ErrorAs(t, err, &full)
	require.Equal(t, "small", full.Tenant)
	require.Equal(t, 2048, full.Size)
	_, err = r.Put("t3", make([]byte, 3000), shmstore.PutOptions{Tenant: "small"})
	var large *shmstore.TooLargeError
	require.ErrorAs(t, err, &large)
	require.Equal(t, "small", large.Tenant)

	for i := 0; ; i++ {
		if _, err = r.Put(fmt.Sprint(i), nil, shmstore.PutOptions{}); err != nil {
			break
		}
	}
	require.ErrorAs(t, err, &full)
	require.Equal(t, 6, full.MaxObjects)
	require.ErrorContains(t, err, "raise MaxObjects")
	r.Rollback()
	_, err = begin(t, s, "huge").Put("huge", make([]byte, 16<<10), shmstore.PutOptions{})
	require.ErrorAs(t, err, &large)
	require.True(t, large.Ring)
}

func TestReaderLooksInPlace(t *testing.T) {
	for _, align := range []int{64, 4096} {
		t.Run(fmt.Sprint(align), func(t *testing.T) {
			s, o := inFolder(t, shmstore.Options{Align: align, Size: 64 << 10, ReaderSlots: 1})
			r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir, Size: o.Size})
			require.NoError(t, err)
			_, err = shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir, Size: o.Size})
			require.ErrorContains(t, err, "slots")
			h := idle(t, s, "a", 5000, 7).Handle()
			v, err := r.Get(h)
			require.NoError(t, err)
			for i := range 50 {
				idle(t, s, fmt.Sprint(i), 6000, 9)
			}
			require.Equal(t, bytes.Repeat([]byte{7}, 5000), v.Bytes())
			require.NoError(t, v.Check())
			require.ErrorIs(t, r.Close(), segment.ErrBusy)
			gone, err := s.Evict("a")
			require.NoError(t, err)
			require.Empty(t, gone, "it is looked at")
			v.Release()
			v.Release()
			gone, err = s.Evict("a")
			require.NoError(t, err)
			require.NotEmpty(t, gone)
			_, err = r.Get(h)
			require.ErrorIs(t, err, shmstore.ErrStale)
			require.ErrorContains(t, err, fmt.Sprintf("id %d at offset %d", h.ID, h.Offset))
			require.NoError(t, r.Close())
			require.NoError(t, r.Close())
			_, err = r.Get(h)
			require.ErrorIs(t, err, fs.ErrClosed)
		})
	}
}

// A handle comes from another process, so it may be anything.
func TestReaderRefusesHandlesThatLeadNowhere(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{})
	good := idle(t, s, "a", 5000, 7).Handle()
	r, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir, Size: o.Size})
	require.NoError(t, err)
	for name, change := range map[string]func(h *shmstore.Handle){
		"offset 0":        func(h *shmstore.Handle) { h.Offset = 0 },
		"offset behind":   func(h *shmstore.Handle) { h.Offset = uint64(o.Size) + 1 },
		"offset huge":     func(h *shmstore.Handle) { h.Offset = 1<<64 - 1 },
		"length behind":   func(h *shmstore.Handle) { h.Length = uint64(o.Size) },
		"length huge":     func(h *shmstore.Handle) { h.Length = 1<<64 - 1 },
		"id of no object": func(h *shmstore.Handle) { h.ID = 1<<32 - 1 },
	} {
		h := good
		change(&h)
		_, err := r.Get(h)
		require.ErrorIs(t, err, shmring.ErrCorrupt, name)
	}
	other := good
	other.ID++
	_, err = r.Get(other)
	require.ErrorIs(t, err, shmstore.ErrStale)
	v, err := r.Get(good)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(filepath.Join(o.Dir, o.Name), 0))
	require.ErrorIs(t, v.Check(), shmring.ErrCorrupt)
	require.ErrorContains(t, v.Check(), "truncated")
	v.Release()
	_, err = r.Get(good)
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	require.NoError(t, r.Close())
	_, err = begin(t, s, "r").Put("b", make([]byte, 100), shmstore.PutOptions{})
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	var corrupt *shmstore.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.NoError(t, s.Abandon())
}

func TestAdopt(t *testing.T) {
	for _, align := range []int{64, 4096} {
		t.Run(fmt.Sprint(align), func(t *testing.T) {
			s, o := inFolder(t, shmstore.Options{Align: align, Format: "kv", Size: 128 << 10, QuarantineTTL: -1, FullSums: true})
			reader, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir, Size: o.Size})
			require.NoError(t, err)
			r := begin(t, s, "r")
			res, err := r.Reserve("used", 5000, shmstore.PutOptions{Note: []byte("a note"), Tenant: "t"})
			require.NoError(t, err)
			copy(res.Bytes(), "used")
			used, err := res.Commit(1)
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			r.Abort()
			unused := idle(t, s, "idle", 3000, 5).Handle()
			damaged := idle(t, s, "damaged", 3000, 6).Handle()
			s.Segment().Bytes()[damaged.Offset+2999]++
			require.NoError(t, s.Detach())

			for name, change := range map[string]func(o *shmstore.Options){
				`"kv`:  func(o *shmstore.Options) { o.Format = "other" },
				"@128": func(o *shmstore.Options) { o.Align = 128 },
			} {
				bad := o
				change(&bad)
				_, _, err := shmstore.Adopt(bad)
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.ErrorContains(t, err, name)
			}
			s, a, err := shmstore.Adopt(o)
			require.NoError(t, err)
			ends(t, s)
			require.Equal(t, shmstore.Adoption{Kept: 2, Dropped: 1, InUse: 1, Clean: true, Epoch: 2}, a)
			require.NoError(t, s.CheckStructure())
			next := begin(t, s, "next")
			o2, err := next.Lookup("used", 1)
			require.NoError(t, err)
			require.Equal(t, o2.Handle().Length, uint64(5000))
			require.Equal(t, "a note", string(o2.Note()))
			require.Equal(t, used.Handle().ID, o2.Handle().ID)
			next.Rollback()
			v, err := reader.Get(unused)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte{5}, 3000), v.Bytes())
			v.Release()
			_, err = reader.Get(damaged)
			require.ErrorIs(t, err, shmstore.ErrStale)
			gone, err := s.Evict("used")
			require.NoError(t, err)
			require.Empty(t, gone, "a request of the last writer may need it")
			s.Fence().Passed()
			freed, err := s.Evict()
			require.NoError(t, err)
			require.Len(t, freed, 2)
			require.NoError(t, reader.Close())
		})
	}
}

func TestAbandonKeepsWhatIsLookedAt(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{})
	r := begin(t, s, "r")
	a := put(t, r, "a", 5000, 7)
	b, err := r.Bytes(a)
	require.NoError(t, err)
	_, err = begin(t, s, "other").Bytes(a)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "request other")
	res, err := r.Reserve("b", 100, shmstore.PutOptions{})
	require.NoError(t, err)
	var busy *shmstore.BusyError
	require.ErrorAs(t, s.Close(), &busy)
	require.ErrorContains(t, busy, `request "r" (not sent`)
	require.ErrorContains(t, busy, `a reservation of key "b"`)
	require.NoError(t, s.Abandon())
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, bytes.Repeat([]byte{7}, 5000), b)
	copy(res.Bytes(), "still there")
	_, err = res.Commit(1)
	require.ErrorIs(t, err, fs.ErrClosed)
	r.Rollback()
	_, err = s.Begin(shmstore.RequestOptions{ID: "late"})
	require.ErrorIs(t, err, fs.ErrClosed)
	require.NoError(t, s.Shutdown(context.Background()))
	require.NoError(t, s.Close())
}

func TestShutdownWaitsForRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 16 << 10})
		r, err := s.Begin(shmstore.RequestOptions{ID: "timed", Deadline: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		put(t, r, "a", 10, 1)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = s.Shutdown(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, segment.ErrBusy)
		require.ErrorContains(t, err, `request "timed"`)
		_, err = s.Begin(shmstore.RequestOptions{ID: "late"})
		require.ErrorIs(t, err, fs.ErrClosed)
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()
		synctest.Wait()
		require.Empty(t, done)
		r.Rollback()
		require.NoError(t, <-done)
	})
}

// A payload is kept by whoever has it, and its bytes are its own, whatever goroutines do.
func TestRandomRequests(t *testing.T) {
	s := private(t, shmstore.Options{Size: 64 << 10, MaxObjects: 40, Quotas: map[string]int64{"bounded": 16 << 10}, QuarantineTTL: -1})
	stop := make(chan struct{})
	var checker, workers sync.WaitGroup
	checker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if !assert.NoError(t, s.CheckStructure()) {
				return
			}
			s.Fence().Passed()
			time.Sleep(time.Millisecond)
		}
	})
	var hits, puts, refused sync.Map
	for g := range 6 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(g)))
			for i := range 500 {
				o := shmstore.RequestOptions{ID: fmt.Sprint(g, "/", i)}
				timed := rng.IntN(4) == 0 // what it has may go at any moment
				if timed {
					o.Deadline = time.Now().Add(time.Duration(rng.IntN(200)) * time.Microsecond)
				}
				r, err := s.Begin(o)
				if !assert.NoError(t, err) {
					return
				}
				k := rng.IntN(60)
				key, n := fmt.Sprint(k), 1+k*150
				po := shmstore.PutOptions{}
				if rng.IntN(3) == 0 {
					po.Tenant = "bounded"
				}
				obj, err := r.Lookup(key, rng.IntN(3))
				if errors.Is(err, shmstore.ErrNotFound) {
					obj, err = r.Put(key, bytes.Repeat([]byte{byte(k)}, n), po)
					puts.Store(g, true)
				} else {
					hits.Store(g, true)
				}
				switch {
				case err == nil && !timed:
					b, err := r.Bytes(obj)
					assert.NoError(t, err)
					assert.True(t, bytes.Equal(b, bytes.Repeat([]byte{byte(k)}, n)), "key %s has another's bytes", key)
				case err == nil:
				case errors.Is(err, shmring.ErrFull):
					refused.Store(g, true)
				default:
					assert.True(t, errors.Is(err, shmstore.ErrEnded) || errors.Is(err, shmstore.ErrKeyExists) || errors.Is(err, shmring.ErrTooLarge), "%v", err)
				}
				switch rng.IntN(4) {
				case 0:
					r.Rollback()
				case 1:
					_ = r.Commit()
					r.Abort()
				case 2:
					r.Drop(key)
					fallthrough
				default:
					_ = r.Commit()
					r.Finish()
				}
				r.Finish() // also if the deadline has ended it
				r.Rollback()
			}
		})
	}
	workers.Wait()
	close(stop)
	checker.Wait()
	for _, m := range []*sync.Map{&hits, &puts, &refused} {
		n := 0
		m.Range(func(any, any) bool { n++; return true })
		require.NotZero(t, n)
	}
	s.Fence().Passed()
	_, err := s.Evict()
	require.NoError(t, err)
	require.Zero(t, chunks(t, s), "something stays though every request has ended")
	st, err := s.Stats()
	require.NoError(t, err)
	require.Zero(t, st.Leases+st.Requests+st.Waiting)
}

func TestNewRefusesASegmentOfAnotherSize(t *testing.T) {
	o := shmstore.Options{Size: 4096}
	seg, err := segment.Private(make([]byte, 8192), segment.Options{RingSize: 8192})
	require.NoError(t, err)
	o.Segment = seg
	_, err = shmstore.Create(o)
	require.ErrorIs(t, err, segment.ErrSize)
	require.NotErrorIs(t, err, fs.ErrInvalid)
}
