package objstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

func segmentName(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("ringcache-test-%d-%d", os.Getpid(), rand.Uint64())
	t.Cleanup(func() {
		for _, suffix := range []string{"", sidecar.Suffix} {
			_ = os.Remove(filepath.Join(shmfile.DefaultDir, name+suffix))
		}
	})
	return name
}

// TestWriterAndReaderShareASegment goes through real shared memory.
func TestWriterAndReaderShareASegment(t *testing.T) {
	name := segmentName(t)
	w, err := fifo.create(Options{Name: name, RingSize: 1 << 16, MaxObjectSize: 1 << 14, Readers: 1})
	require.NoError(t, err)
	r, err := Open(name, ReaderOptions{RingSize: 1 << 16, Readers: 1, Lock: newLock()})
	require.NoError(t, err)
	h, err := w.Put("k", image(1000, 7))
	require.NoError(t, err)
	v, err := r.Get("k", h)
	require.NoError(t, err)
	require.Equal(t, tensor(1000, 7), v.Item().Elems[0].Data)
	require.ErrorIs(t, r.Close(), ErrBusy, "a view is open")
	require.NoError(t, v.Release())
	require.NoError(t, v.Release())
	st, err := w.State()
	require.NoError(t, err)
	require.Equal(t, int64(1), st.Objects[0].Reads, "released twice, counted once")
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Get("k", h)
	require.ErrorIs(t, err, errClosed)
	require.ErrorIs(t, r.Touch(context.Background(), "k", h), errClosed)
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.NoFileExists(t, filepath.Join(shmfile.DefaultDir, name))
	for _, err := range []error{
		second(w.Put("x", image(1, 1))), second(w.Lookup("k")), w.Touch("k"), w.Clear(), second(w.FreeUnused()),
		second(w.State()), second(w.Signature("k")), w.Verify("k", h), second(w.Get(h)), second(w.Reserve("x", image(1, 1))),
	} {
		require.ErrorIs(t, err, errClosed)
	}
}

func second[T any](_ T, err error) error { return err }

func TestCreateAndOpenErrors(t *testing.T) {
	name := segmentName(t)
	o := Options{Name: name, RingSize: 1 << 12, MaxObjectSize: 100, Readers: 1, Generation: generation(t, "0.31.0")}
	w, err := fifo.create(o)
	require.NoError(t, err)
	_, err = fifo.create(o)
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = Open(name, ReaderOptions{RingSize: 1 << 12, Readers: 1}) // 0.33.0 expects 32 bytes more
	require.ErrorIs(t, err, segment.ErrSize)
	_, err = Open(name, ReaderOptions{RingSize: 1<<12 + 1, Readers: 1, Generation: o.Generation})
	require.ErrorIs(t, err, segment.ErrSize)
	require.NoError(t, w.Close())
	_, err = Open(name, ReaderOptions{RingSize: 1 << 12, Readers: 1, Generation: o.Generation})
	require.ErrorIs(t, err, fs.ErrNotExist)

	bad := func(change func(*Options)) Options {
		x := o
		change(&x)
		return x
	}
	for name, o := range map[string]Options{
		"ring":    bad(func(o *Options) { o.RingSize = 8 }),
		"object":  bad(func(o *Options) { o.MaxObjectSize = -1 }),
		"readers": bad(func(o *Options) { o.Readers = 0 }),
		"quota":   bad(func(o *Options) { o.Quota = 1 }),
		"align":   bad(func(o *Options) { o.Align = 3 }),
		"many":    bad(func(o *Options) { o.Readers = 1 << 31 }),
		"id":      bad(func(o *Options) { o.FirstID = 1 << 31 }),
	} {
		_, err := fifo.create(o)
		require.ErrorIs(t, err, errInvalid, name)
	}
	_, err = fifo.create(bad(func(o *Options) { o.Generation = &pycompat.Generation{Version: "0.33.0"} }))
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, `Generation "0.33.0" is incomplete`)
	seg, err := segment.Private(make([]byte, 100), segment.Options{RingSize: 100})
	require.NoError(t, err)
	_, err = fifo.over(seg, Options{RingSize: 100, MaxObjectSize: 10, Readers: 1})
	require.ErrorIs(t, err, segment.ErrSize, "newest generation has a secret in front")
	_, err = Open("", ReaderOptions{Segment: seg, RingSize: 99, Readers: 1, Generation: o.Generation})
	require.ErrorIs(t, err, segment.ErrSize)
	for name, x := range map[string]ReaderOptions{
		"LockTimeout -1ns": {LockTimeout: -1},
		"SidecarLock":      {SidecarLock: true, Segment: seg},
		"both set":         {SidecarLock: true, Lock: newLock()},
	} {
		x.RingSize, x.Readers, x.Generation = 100, 1, o.Generation
		_, err = Open("", x)
		require.ErrorIs(t, err, errInvalid, name)
		require.ErrorContains(t, err, name)
	}
	_, _, err = AdoptPool(o)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, _, err = AdoptPool(bad(func(o *Options) { o.Segment, o.RingSize = seg, 100 }))
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, "adopted by the name of its segment")
	_, err = fifo.create(bad(func(o *Options) { o.Quota = 1 }))
	require.ErrorIs(t, err, errInvalid)
	require.ErrorContains(t, err, "a FIFO has no quotas")
}

// TestWriterOverUsedSegment: handles that an earlier writer gave out must not
// match what the new one writes.
func TestWriterOverUsedSegment(t *testing.T) {
	for _, version := range []string{"0.31.0", "0.33.0"} {
		g := generation(t, version)
		m := make([]byte, g.DataOffset+4096)
		writer := func(first uint32) *writer {
			seg, err := segment.Private(m, segment.Options{RingSize: 4096, DataOffset: g.DataOffset})
			require.NoError(t, err)
			w, err := fifo.over(seg, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1, Generation: g, FirstID: first})
			require.NoError(t, err)
			return w
		}
		seg, err := segment.Private(m, segment.Options{RingSize: 4096, DataOffset: g.DataOffset})
		require.NoError(t, err)
		r, err := Open("", ReaderOptions{Segment: seg, RingSize: 4096, Readers: 1, Generation: g})
		require.NoError(t, err)

		old, err := writer(0).Put("cat", image(300, 1))
		require.NoError(t, err)
		first := uint32(0)
		if !g.Signed {
			first = 1000
		}
		w := writer(first)
		_, err = w.Put("dog", image(300, 2))
		require.NoError(t, err)
		require.NoError(t, w.CheckStructure())
		_, err = r.Get("cat", old)
		if g.Signed {
			require.ErrorIs(t, err, ErrBadSignature)
		} else {
			require.ErrorIs(t, err, ErrStale)
		}
	}
}

func layout(n int) *serde.Item {
	return &serde.Item{Elems: []serde.Elem{
		{Key: "pixels", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}}},
		{Key: "grid", Data: &serde.Tensor{DType: "int64", Shape: []int{3}}},
	}}
}

func TestReserveFillCommit(t *testing.T) {
	s := newStore(t, Options{RingSize: 1 << 14, MaxObjectSize: 1 << 13, Readers: 1})
	r, err := s.Reserve("k", layout(1000))
	require.NoError(t, err)
	require.False(t, s.Cached("k"), "not visible yet")
	_, err = s.Lookup("k")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Put("k", image(1, 1))
	var exists *shmstore.KeyError
	require.ErrorAs(t, err, &exists)
	require.True(t, exists.Reserved)
	require.ErrorIs(t, s.Clear(), ErrBusy)
	require.ErrorIs(t, s.writer.Close(), ErrBusy)

	pixels, grid := r.Tensor("pixels"), r.Tensor("grid")
	require.Len(t, pixels, 1000)
	require.Equal(t, 1000, cap(pixels))
	require.Len(t, grid, 24, "the small one lies in the message")
	require.Nil(t, r.Tensor("nope"))
	require.Len(t, r.Tensors(), 2)
	for i := range pixels {
		pixels[i] = byte(i)
	}
	for i := range 3 {
		binary.LittleEndian.PutUint64(grid[8*i:], uint64(i+1))
	}
	h, err := r.Commit()
	require.NoError(t, err)
	_, err = r.Commit()
	require.ErrorIs(t, err, errInvalid)
	r.Discard() // nothing

	v, err := s.readers[0].Get("k", h)
	require.NoError(t, err)
	for i, b := range v.Item().Elems[0].Data.(*serde.Tensor).Data {
		require.Equal(t, byte(i), b)
	}
	require.Equal(t, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}, v.Item().Elems[1].Data.(*serde.Tensor).Data)
	require.NoError(t, v.Release())
}

// TestFailedPutDoesNotPoison: upstream's ring is stuck, and its index points at
// reused memory, once a copy failed half-way.
func TestFailedPutDoesNotPoison(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 4000, Readers: 1})
	_, err := s.Put("layout only", layout(10))
	require.ErrorIs(t, err, errInvalid)
	require.False(t, s.Cached("layout only"))
	for i := range 100 { // discarded chunks are free at once
		r, err := s.Reserve("k", layout(1000))
		require.NoError(t, err, i)
		r.Discard()
		r.Discard()
		_, err = r.Commit()
		require.ErrorIs(t, err, errInvalid)
		require.NoError(t, s.CheckStructure())
	}
	_, err = s.Put("k", image(1000, 1))
	require.NoError(t, err)
	_, err = s.Put("bad", &serde.Tensor{DType: "uint8", Shape: []int{5}, Data: make([]byte, 4)})
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = s.Put("bad", nil)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NoError(t, s.VerifyItem("k", nil), "a feature without data")
}

// TestPutOfALayoutEvictsNothing: it can't be stored, so nothing has to go.
func TestPutOfALayoutEvictsNothing(t *testing.T) {
	s := newStore(t, Options{RingSize: 1200, MaxObjectSize: 1100, Readers: 1})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	s.readAll(t, h, "a")
	_, err = s.Put("b", layout(700))
	require.ErrorIs(t, err, errInvalid)
	require.True(t, s.Cached("a"))
	require.Equal(t, 1, s.Len())
}

// TestKeyThatPythonCantName: its use would never be read, and stay.
func TestKeyThatPythonCantName(t *testing.T) {
	s := newStore(t, Options{RingSize: 1200, MaxObjectSize: 1100, Readers: 1})
	_, err := s.Put("caf\xe9", image(6, 1))
	require.ErrorIs(t, err, errInvalid)
	h, err := s.Put("", image(6, 1))
	require.NoError(t, err, "an empty key is a key")
	s.readAll(t, h, "")
}

// TestNoLimitOnObjects: twice the limit must not overflow.
func TestNoLimitOnObjects(t *testing.T) {
	s := newStore(t, Options{RingSize: 1200, MaxObjectSize: math.MaxInt, Readers: 1})
	for i := range 5 {
		h, err := s.Put(fmt.Sprint(i), image(600, 1))
		require.NoError(t, err)
		s.readAll(t, h, fmt.Sprint(i))
	}
	_, err := s.Put("large", image(1200, 1))
	var large *shmstore.TooLargeError
	require.ErrorAs(t, err, &large)
	require.True(t, large.Ring)
	require.ErrorIs(t, err, ErrTooLarge)
	require.NotErrorIs(t, err, ErrFull, "waiting does not help")
	_, err = s.Reserve("vast", &serde.Tensor{DType: "uint8", Shape: []int{math.MaxInt - 30}})
	require.ErrorIs(t, err, ErrTooLarge)
}

// TestIDsAreBelowTwoToThe31: Python reads a larger one as negative, and finds
// nothing.
func TestIDsAreBelowTwoToThe31(t *testing.T) {
	s := newStore(t, Options{RingSize: 1200, MaxObjectSize: 1000, Readers: 1, Generation: generation(t, "0.31.0")})
	binary.LittleEndian.PutUint32(s.mem, 0xffffffff)
	_, err := s.readers[0].Get("k", serde.Address{ID: 0xffffffff})
	require.ErrorIs(t, err, ErrStale)
}

func TestFullErrorNamesTheOldest(t *testing.T) {
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 3})
	h, err := s.Put("a", image(400, 1))
	require.NoError(t, err)
	_, err = s.Lookup("a")
	require.NoError(t, err)
	for _, r := range s.readers[:2] {
		v, err := r.Get("a", h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
	_, err = s.Put("b", image(500, 1))
	var full *HeadError
	require.ErrorAs(t, err, &full)
	require.Equal(t, HeadError{Need: full.Need, Used: full.Used, Size: full.Size, Key: "a", Uses: 2, Reads: 2, Readers: 3}, *full)
	require.ErrorContains(t, err, `key "a", was read 2 of 6 times`)

	for range 4 {
		v, err := s.readers[0].Get("a", h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
	require.NoError(t, s.Touch("a"))
	_, err = s.Put("b", image(500, 1))
	require.ErrorContains(t, err, "touched")
	s.ReleaseTouches()
	_, err = s.Put("b", image(500, 1))
	require.NoError(t, err)
	require.False(t, s.Cached("a"))
	require.NoError(t, s.Clear())

	r, err := s.Reserve("c", layout(500))
	require.NoError(t, err)
	_, err = s.Put("d", image(500, 1))
	require.ErrorContains(t, err, "being written")
	r.Discard()
}

// TestUsesStopBeforeTheCountOverflows: reads are an int32 in the segment, so an
// object can't be issued for ever. Its key goes to a new object.
func TestUsesStopBeforeTheCountOverflows(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 2})
	h, err := s.Put("hot", image(10, 1))
	require.NoError(t, err)
	s.fifo.objects[h.ID].uses = math.MaxInt32 / 2
	require.False(t, s.Cached("hot"))
	require.NoError(t, s.CheckStructure())
	h2, err := s.Put("hot", image(10, 2))
	require.NoError(t, err)
	require.NotEqual(t, h.ID, h2.ID)
	require.NoError(t, s.CheckStructure())
	_, err = s.Lookup("hot")
	require.NoError(t, err)

	s.fifo.objects[h2.ID].uses = math.MaxInt32 / 2
	_, err = s.Lookup("hot")
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, s.CheckStructure())

	payload := make([]byte, 4)
	binary.LittleEndian.PutUint32(payload, math.MaxInt32)
	addRead(payload)
	require.Equal(t, int64(math.MaxInt32), readCount(payload), "the count saturates")
}

// TestStaleCountDoesNotLand: upstream counts a read on whatever lies at the
// address by then.
func TestStaleCountDoesNotLand(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1})
	h, err := s.Put("a", image(300, 1))
	require.NoError(t, err)
	v, err := s.readers[0].Get("a", h)
	require.NoError(t, err)
	require.NoError(t, s.Clear())
	_, err = s.Put("b", image(300, 2))
	require.NoError(t, err)
	require.ErrorIs(t, second(v.Clone()), ErrStale, "what was read is not believed")
	require.ErrorIs(t, v.Release(), ErrStale)
	st, err := s.State()
	require.NoError(t, err)
	require.Zero(t, st.Objects[0].Reads)
}

// TestIDsRestartMakesOldHandlesMatch shows the hazard that KeepIDs ends.
func TestIDsRestartMakesOldHandlesMatch(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1, Generation: generation(t, "0.31.0"), KeepIDs: keep})
		h, err := s.Put("cat", image(300, 1))
		require.NoError(t, err)
		require.NoError(t, s.Clear())
		_, err = s.Put("dog", image(300, 2))
		require.NoError(t, err)
		v, err := s.readers[0].Get("cat", h)
		if keep {
			require.ErrorIs(t, err, ErrStale)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tensor(300, 2), v.Item().Elems[0].Data, "a dog for a cat")
		require.NoError(t, v.Release())
	}
}

func TestReadNotCounted(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1})
	seg, err := segment.Private(s.mem, segment.Options{RingSize: 4096, DataOffset: 32})
	require.NoError(t, err)
	lock := newLock()
	r, err := Open("", ReaderOptions{Segment: seg, RingSize: 4096, Readers: 1, Lock: lock, LockTimeout: time.Millisecond})
	require.NoError(t, err)
	h, err := s.Put("a", image(300, 1))
	require.NoError(t, err)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	require.NoError(t, lock.Lock(context.Background())) // its holder died
	err = v.Release()
	require.ErrorIs(t, err, ErrNotCounted)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, r.Close(), "released all the same")
}

func TestObserverDoesNotCount(t *testing.T) {
	for _, version := range []string{"0.31.0", "0.33.0"} {
		g := generation(t, version)
		s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1, Generation: g})
		seg, err := segment.Private(s.mem, segment.Options{RingSize: 4096, DataOffset: g.DataOffset})
		require.NoError(t, err)
		r, err := Open("", ReaderOptions{Segment: seg, RingSize: 4096, Readers: 1, Generation: g})
		require.NoError(t, err)
		h, err := s.Put("a", image(300, 1))
		require.NoError(t, err)
		require.NoError(t, r.Touch(context.Background(), "a", h))
		require.NoError(t, r.Verify("a", h))
		v, err := r.Get("a", h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
		st, err := s.State()
		require.NoError(t, err)
		require.Zero(t, st.Objects[0].Reads)
		require.NoError(t, r.Close())
	}
}

// TestScribbledSegment flips every byte of a chunk, and every byte to every one
// of some values: a reader returns a value or a typed error, and never panics.
func TestScribbledSegment(t *testing.T) {
	for _, version := range []string{"0.12.0", "0.15.1", "0.31.0", "0.33.0"} {
		g := generation(t, version)
		s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1, Generation: g})
		h, err := s.Put("a", &serde.Item{Modality: "image", Elems: []serde.Elem{
			{Key: "x", Data: tensor(300, 1), Field: serde.FlatFromSizes(3, 4)},
			{Key: "y", Data: []any{int64(5), tensor(9, 2)}, Field: serde.Field{Kind: serde.Shared, BatchSize: 2}},
		}})
		require.NoError(t, err)
		good := append([]byte{}, s.mem...)
		end := g.DataOffset + int(s.fifo.ring.Used())
		kinds := map[string]int{}
		for p := g.DataOffset; p < end; p++ {
			for _, x := range []byte{0x01, 0x80, 0xff, good[p] ^ 0xc1} {
				s.mem[p] ^= x
				v, err := s.readers[0].Get("a", h)
				switch {
				case err == nil:
					kinds["value"]++
					_, _ = v.Clone()
					_ = v.Release()
				case errors.Is(err, ErrStale):
					kinds["stale"]++
				default:
					require.ErrorIs(t, err, ErrCorrupt, "byte %d", p)
					var c *shmstore.CorruptError
					require.ErrorAs(t, err, &c)
					kinds["corrupt"]++
				}
				copy(s.mem, good)
			}
		}
		require.NotZero(t, kinds["stale"])
		require.NotZero(t, kinds["corrupt"])
		t.Logf("%s: %d bytes: %v", version, end-g.DataOffset, kinds)
	}
}

// TestTruncatedSegment: a file that is made shorter under our mapping would be
// a SIGBUS.
func TestTruncatedSegment(t *testing.T) {
	name := segmentName(t)
	const n = 1 << 16
	w, err := fifo.create(Options{Name: name, RingSize: n, MaxObjectSize: n, Readers: 1})
	require.NoError(t, err)
	r, err := Open(name, ReaderOptions{RingSize: n, Readers: 1, Lock: newLock()})
	require.NoError(t, err)
	h, err := w.Put("a", image(20000, 1))
	require.NoError(t, err)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	reservation, err := w.Reserve("b", layout(10000))
	require.NoError(t, err)

	require.NoError(t, os.Truncate(filepath.Join(shmfile.DefaultDir, name), 0))
	for what, err := range map[string]error{
		"get": second(r.Get("a", h)), "touch": r.Touch(context.Background(), "a", h), "verify": r.Verify("a", h),
		"check": v.Check(), "clone": second(v.Clone()), "release": v.Release(),
		"put": second(w.Put("c", image(30000, 1))), "free": second(w.FreeUnused()), "commit": second(reservation.Commit()), "check structure": w.CheckStructure(),
	} {
		require.ErrorIs(t, err, ErrCorrupt, what)
		require.ErrorContains(t, err, "truncated", what)
	}
	reservation.Discard()
	require.NoError(t, w.Touch("a"))
	_, err = w.Put("d", image(60000, 1))
	require.ErrorIs(t, err, ErrFull, "the oldest is protected, and described without its count")
	_, err = w.State()
	require.NoError(t, err)
	require.NoError(t, w.Verify("a", h), "what the writer knows needs no memory")
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
}

// TestTruncationWhileFreeing: what was freed before the fault is forgotten, or
// its key would point at memory that is used again.
func TestTruncationWhileFreeing(t *testing.T) {
	name := segmentName(t)
	const n, page = 1 << 16, 4096
	w, err := fifo.create(Options{Name: name, RingSize: n, MaxObjectSize: n, Readers: 1})
	require.NoError(t, err)
	r, err := Open(name, ReaderOptions{RingSize: n, Readers: 1, Lock: newLock()})
	require.NoError(t, err)
	for i := range 3 {
		h, err := w.Put(fmt.Sprint(i), image(2*page, 1))
		require.NoError(t, err)
		v, err := r.Get(fmt.Sprint(i), h)
		require.NoError(t, err)
		require.NoError(t, v.Release())
	}
	require.NoError(t, os.Truncate(filepath.Join(shmfile.DefaultDir, name), page))
	freed, err := w.FreeUnused()
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, []uint32{0}, freed)
	require.False(t, w.Cached("0"))
	require.True(t, w.Cached("1"))
	require.Equal(t, 2, w.Len())
	require.NoError(t, r.Close())
	require.NoError(t, w.Close())
}

// TestManyGoroutines: producers and readers at once, over aligned private
// memory, so that the race detector sees every access.
func TestManyGoroutines(t *testing.T) {
	t.Run("fifo", func(t *testing.T) {
		manyGoroutines(t, newStore(t, Options{RingSize: 1 << 16, MaxObjectSize: 1 << 13, Readers: 2, Align: 64}))
	})
	t.Run("pool", func(t *testing.T) {
		manyGoroutines(t, newPoolStore(t, Options{RingSize: 1 << 16, MaxObjectSize: 1 << 13}))
	})
}

func manyGoroutines(t *testing.T, s *store) {
	type sent struct {
		key string
		h   serde.Address
		b   byte
	}
	queues := []chan sent{make(chan sent, 64), make(chan sent, 64)}
	var readers, writers sync.WaitGroup
	for i, r := range s.readers {
		readers.Go(func() {
			for x := range queues[i] {
				v, err := r.Get(x.key, x.h)
				if err != nil {
					t.Error(err)
					continue
				}
				for _, b := range v.Item().Elems[0].Data.(*serde.Tensor).Data {
					if b != x.b {
						t.Errorf("%s: got %d, want %d", x.key, b, x.b)
						break
					}
				}
				if err := errors.Join(v.Check(), v.Release()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var stored, found, full, taken int
	var mu sync.Mutex
	for g := range 4 {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 400 {
				k := rng.IntN(40)
				key, b := fmt.Sprint(k), byte(k)
				h, err := s.Lookup(key)
				hit := err == nil
				if !hit {
					h, err = s.Put(key, image(k*150+1, b))
				}
				mu.Lock()
				switch {
				case hit:
					found++
				case errors.Is(err, ErrFull):
					full++
				case errors.Is(err, ErrKeyExists):
					taken++
				case err != nil:
					t.Error(err)
				default:
					stored++
				}
				mu.Unlock()
				if err == nil {
					for _, q := range queues {
						q <- sent{key, h, b}
					}
				}
			}
		})
	}
	writers.Wait()
	for _, q := range queues {
		close(q)
	}
	readers.Wait()
	t.Logf("%d stored, %d found, %d full, %d taken by another", stored, found, full, taken)
	require.NotZero(t, stored)
	require.NotZero(t, found)
	for s.Len() > 0 {
		freed, err := s.FreeUnused()
		require.NoError(t, err)
		require.NotEmpty(t, freed, "everything was read, so everything is free")
	}
}
