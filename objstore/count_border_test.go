package objstore

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Python's counter of reads is a signed 32-bit integer, and ours stops at its largest value. An object must not need
// that many reads, since one read more could not be told from it.
func TestCountStaysBelowTheLargestOfPython(t *testing.T) {
	r := counting{readers: 1}
	c := counts{uses: math.MaxInt32 - 2}
	_, err := r.take(&c, "k", 1)
	require.ErrorIs(t, err, ErrFull)
	require.Equal(t, counts{uses: math.MaxInt32 - 2}, c, "a refusal changes nothing")
	c = counts{uses: math.MaxInt32 - 3}
	uses, err := r.take(&c, "k", 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, uses)
}
