package serde

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lengths of frames come from a peer, or from whoever scribbled over the segment.
func TestDecodeValueRefusesLengthsThatAreNone(t *testing.T) {
	for _, lens := range [][]int64{{-1}, {math.MinInt64}, {4, -1}, {2, -1, 2}, {4, math.MaxInt64}, {5}, {2}} {
		for _, kind := range []string{typeItem, typeTensor} {
			_, err := DecodeValue(Metadata{Type: kind, NBytes: 4, Lens: lens}, make([]byte, 4), Options{})
			require.ErrorIs(t, err, ErrCorrupt, "%s %v", kind, lens)
		}
	}
}
