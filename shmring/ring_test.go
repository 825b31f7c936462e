package shmring

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func newRing(t *testing.T, size int, o RingOptions) *Ring {
	t.Helper()
	r := NewRing(make([]byte, size), o)
	t.Cleanup(func() { require.NoError(t, r.CheckStructure()) })
	return r
}

func always(uint32, []byte) bool { return true }

// only returns a predicate that is true for the given ids.
func only(ids ...uint32) func(uint32, []byte) bool {
	return func(id uint32, _ []byte) bool {
		for _, x := range ids {
			if x == id {
				return true
			}
		}
		return false
	}
}

func alloc(t *testing.T, r *Ring, size int, address uint64, id uint32) {
	t.Helper()
	a, i, payload, err := r.Alloc(size)
	require.NoError(t, err)
	require.Equal(t, address, a)
	require.Equal(t, id, i)
	require.Len(t, payload, size)
}

func full(t *testing.T, r *Ring, size int) {
	t.Helper()
	before := r.State()
	_, _, _, err := r.Alloc(size)
	require.True(t, errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge), "%v: vLLM has one error for both", err)
	require.Equal(t, before, r.State())
}

func at(t *testing.T, r *Ring, start, end uint64) {
	t.Helper()
	require.Equal(t, [2]uint64{start, end}, [2]uint64{r.State().Start, r.State().End})
}

func TestVectorWrapAndReset(t *testing.T) {
	r := newRing(t, 100, RingOptions{})
	alloc(t, r, 20, 0, 0)
	alloc(t, r, 30, 28, 1)
	alloc(t, r, 20, 66, 2)
	at(t, r, 0, 94)
	require.Equal(t, []uint32{0}, r.Free(only(0), r.Size()))
	at(t, r, 28, 94)
	alloc(t, r, 20, 100, 3)
	at(t, r, 28, 128)
	full(t, r, 40)
	require.Equal(t, []uint32{1}, r.Free(only(1), r.Size()))
	at(t, r, 66, 128)
	full(t, r, 40)
	alloc(t, r, 1, 128, 4)
	require.Equal(t, []uint32{2, 3, 4}, r.Free(always, r.Size()))
	require.Equal(t, RingState{0, 0, 5, 5}, r.State())
}

func TestVectorRebase(t *testing.T) {
	r := newRing(t, 100, RingOptions{})
	alloc(t, r, 30, 0, 0)
	alloc(t, r, 30, 38, 1)
	r.Free(only(0), r.Size())
	alloc(t, r, 20, 100, 2)
	r.Free(only(1), r.Size())
	at(t, r, 0, 28)
	require.Equal(t, uint64(100), r.live[2].address, "addresses are not rebased")
	alloc(t, r, 40, 28, 3)
	require.Equal(t, []uint32{2}, r.Free(always, 1))
	at(t, r, 28, 76)
	require.Empty(t, r.Free(always, 0))
}

func TestVectorExactFit(t *testing.T) {
	r := newRing(t, 100, RingOptions{})
	alloc(t, r, 92, 0, 0)
	full(t, r, 1)
	r.Free(always, r.Size())
	full(t, r, 93)
	alloc(t, r, 42, 0, 1)
	alloc(t, r, 42, 50, 2)
	r.Free(only(1), r.Size())
	alloc(t, r, 42, 100, 3)
}

func TestVectorIDWrap(t *testing.T) {
	r := newRing(t, 64, RingOptions{FirstID: IDLimit - 2})
	alloc(t, r, 4, 0, IDLimit-2)
	alloc(t, r, 4, 12, IDLimit-1)
	alloc(t, r, 4, 24, 0)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0x7f, 0x0c, 0, 0, 0}, r.buf[12:20])
	require.Equal(t, []uint32{IDLimit - 2, IDLimit - 1, 0}, r.Free(always, r.Size()))
}

func TestVectorSteadyState(t *testing.T) {
	r := newRing(t, 100, RingOptions{})
	for i, want := range []uint64{0, 25, 51, 100, 125, 51, 100, 125, 51, 100, 125, 51} {
		alloc(t, r, 17+i%3, want, uint32(i))
		if i >= 2 {
			require.Equal(t, []uint32{uint32(i - 2)}, r.Free(only(uint32(i-2)), r.Size()))
			at(t, r, [3]uint64{25, 51, 0}[(i-2)%3], [3]uint64{78, 125, 51}[(i-2)%3])
		}
	}
}

// The scenarios of upstream's tests/distributed/test_shm_buffer.py.

func TestUpstreamBufferAccess(t *testing.T) {
	r := newRing(t, 4096, RingOptions{})
	a, id, payload, err := r.Alloc(100)
	require.NoError(t, err)
	text := make([]byte, 91)
	for i := range text {
		text[i] = byte(i)
	}
	copy(payload, text)
	c, err := ReadChunk(r.buf, a)
	require.NoError(t, err)
	require.Equal(t, id, c.ID)
	require.Equal(t, 108, c.Size)
	require.Equal(t, text, c.Payload[:91])
}

func TestUpstreamMemoryErrorOnFullBuffer(t *testing.T) {
	r := newRing(t, 200, RingOptions{})
	alloc(t, r, 100, 0, 0)
	alloc(t, r, 80, 108, 1)
	require.Equal(t, uint64(196), r.Used())
	_, _, _, err := r.Alloc(1)
	var f *FullError
	require.ErrorAs(t, err, &f)
	require.Equal(t, FullError{Need: 9, Used: 196, Size: 200}, *f)
}

func TestUpstreamAllocationAndFree(t *testing.T) {
	r := newRing(t, 200, RingOptions{})
	for i := range uint32(5) {
		alloc(t, r, 80, 0, i)
		require.Equal(t, []uint32{i}, r.Free(always, r.Size()))
	}
}

func TestUpstreamClearBuffer(t *testing.T) {
	for name, c := range map[string]struct {
		restart bool
		want    RingState
	}{
		"ids go on":   {false, RingState{IDStart: 3, IDEnd: 3}},
		"ids restart": {true, RingState{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRing(t, 1000, RingOptions{IDsRestart: c.restart})
			for range 3 {
				_, _, _, err := r.Alloc(20)
				require.NoError(t, err)
			}
			r.Clear()
			require.Equal(t, c.want, r.State())
			require.Zero(t, r.Len())
		})
	}
}

func TestUpstreamAllocationCycles(t *testing.T) {
	r := newRing(t, 100, RingOptions{})
	owner := make([]int64, 100)
	for i := range owner {
		owner[i] = -1
	}
	where := map[uint32]uint64{}
	free := func(ids []uint32) {
		for _, id := range ids {
			for p := where[id] % 100; p < where[id]%100+10; p++ {
				require.Equal(t, int64(id), owner[p], "frees exactly what was allocated")
				owner[p] = -1
			}
		}
	}
	for range 33 {
		a, id, _, err := r.Alloc(2)
		if errors.Is(err, ErrFull) {
			free(r.Free(always, 20))
			a, id, _, err = r.Alloc(2)
		}
		require.NoError(t, err)
		where[id] = a
		for p := a % 100; p < a%100+10; p++ {
			require.Equal(t, int64(-1), owner[p], "no overlap")
			owner[p] = int64(id)
		}
	}
	free(r.Free(always, r.Size()))
	alloc(t, r, 92, 0, 33)
}

func TestAllocRefuses(t *testing.T) {
	r := newRing(t, 100, RingOptions{})
	for _, size := range []int{0, -1, math.MinInt} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			_, _, _, err := r.Alloc(size)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, fmt.Sprintf("allocation of %d bytes", size))
		})
	}
	for _, size := range []int{93, 1 << 31, math.MaxInt, math.MaxInt - 7} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			_, _, _, err := r.Alloc(size)
			var large *TooLargeError
			require.ErrorAs(t, err, &large)
			require.NotErrorIs(t, err, ErrFull, "waiting does not help")
			require.Equal(t, 100, large.Limit)
		})
	}
	require.Equal(t, RingState{}, r.State(), "nothing changed")
}

func TestBadRingOptionsPanic(t *testing.T) {
	for what, o := range map[string]RingOptions{
		"Align 3": {Align: 3}, "Align 4": {Align: 4}, "Align -8": {Align: -8}, "DataOffset -1": {DataOffset: -1}, "FirstID 2147483648": {FirstID: IDLimit},
	} {
		t.Run(what, func(t *testing.T) {
			require.ErrorIs(t, o.Validate(), fs.ErrInvalid)
			require.ErrorContains(t, o.Validate(), what)
			require.PanicsWithError(t, o.Validate().Error(), func() { NewRing(make([]byte, 100), o) })
		})
	}
	require.Panics(t, func() { NewRing(make([]byte, HeaderSize), RingOptions{}) })
}

// TestNewChunkKillsHeadersInItsWay: a stale reader finds out by looking at the
// header again, so the header must change before the payload behind it does,
// even if the new owner fills its chunk from the end.
func TestNewChunkKillsHeadersInItsWay(t *testing.T) {
	r := newRing(t, 200, RingOptions{})
	var stale []uint64
	for range 5 {
		a, _, _, err := r.Alloc(20)
		require.NoError(t, err)
		stale = append(stale, a)
	}
	r.Clear()
	_, _, _, err := r.Alloc(80) // over chunks 0 to 3, into the header of none
	require.NoError(t, err)
	for i, a := range stale {
		c, _ := ReadChunk(r.buf, a)
		if i < 4 {
			require.NotEqual(t, uint32(i), c.ID, "chunk %d", i)
		} else {
			require.Equal(t, uint32(i), c.ID, "untouched memory stays readable")
		}
	}
}

func TestPartlyCoveredHeaderIsKilledToo(t *testing.T) {
	for size := 1; size < 40; size++ {
		r := newRing(t, 100, RingOptions{FirstID: 0xff})
		for range 3 {
			_, _, _, err := r.Alloc(1)
			require.NoError(t, err)
		}
		r.Clear()
		_, _, _, err := r.Alloc(size)
		require.NoError(t, err)
		for i := range 3 {
			p := i * 9
			c, _ := ReadChunk(r.buf, uint64(p))
			if covered := p < size+HeaderSize; covered {
				require.NotEqual(t, uint32(0xff+i), c.ID, "size %d, chunk %d", size, i)
			}
		}
	}
}
