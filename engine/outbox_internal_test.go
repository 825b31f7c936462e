package engine

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutbox: outputs come in their order, the last word behind them, and a reader that
// keeps up, or is always the same distance behind, makes the slice no longer.
func TestOutbox(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for behind := range 20 {
		b := newOutbox()
		put, taken := 0, 0
		for range 1000 {
			for put-taken <= r.IntN(behind+1) {
				b.put(Output{Index: put})
				put++
			}
			o, found, err := b.take()
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, taken, o.Index)
			taken++
		}
		require.LessOrEqual(t, cap(b.outputs), 64)
		b.end(io.EOF)
		for ; taken < put; taken++ {
			o, found, err := b.take()
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, taken, o.Index)
		}
		_, found, err := b.take()
		require.True(t, found)
		require.Equal(t, io.EOF, err)
		for _, o := range b.outputs[:cap(b.outputs)] {
			require.Zero(t, o, "nothing is kept")
		}
	}
}
