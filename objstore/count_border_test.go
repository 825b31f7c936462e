package objstore

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
)

// Python's counter of reads is a signed 32-bit integer, and ours stops at its largest value. An object must not need
// that many reads, since one read more could not be told from it.
func TestCountStaysBelowTheLargestOfPython(t *testing.T) {
	r := counting{readers: 1}
	c := counts{uses: math.MaxInt32 - 2}
	_, err := r.use(&c, "k", 1)
	require.ErrorIs(t, err, ErrFull)
	require.Equal(t, counts{uses: math.MaxInt32 - 2}, c, "a refusal changes nothing")
	c = counts{uses: math.MaxInt32 - 3}
	uses, err := r.use(&c, "k", 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, uses)
}

// A counter that somebody scribbled on stops at the largest value, and the object goes as any other.
func TestReadOfALargestCountDoesNotMakeItNegative(t *testing.T) {
	s := newStore(t, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	mem.Store32(s.Segment().Ring()[h.Address+8:], math.MaxInt32)
	s.readAll(t, h, "a")
	state, err := s.State()
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt32, state.Objects[0].Reads)
	freed, err := s.FreeUnused()
	require.NoError(t, err)
	require.Equal(t, []uint32{h.ID}, freed)
}
