package preprocess

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// TestModality: what a processor makes is what its modality asks for; other rows,
// and another grid, are not.
func TestModality(t *testing.T) {
	for _, run := range []string{"llava-56", "qwen2-vl"} {
		t.Run(run, func(t *testing.T) {
			p := processorOf(t, run)
			m, err := Modality(p)
			require.NoError(t, err)
			file := readImage(t, "media/coffee.png")
			l, it, err := process(p, file)
			require.NoError(t, err)
			require.Len(t, m.Elems, len(it.Elems))
			for _, e := range m.Elems {
				x, ok := it.Lookup(e.Key)
				require.True(t, ok)
				require.Equal(t, e.DType, x.Data.(*serde.Tensor).DType)
				require.Equal(t, e.Field, x.Field.Kind)
				require.Len(t, x.Data.(*serde.Tensor).Shape, len(e.Shape))
			}
			n, err := m.Tokens(it)
			require.NoError(t, err)
			require.Equal(t, l.Tokens, n)
			g, ok := it.Lookup(gridKey)
			if !ok {
				return
			}
			grid := g.Data.(*serde.Tensor).Data
			for _, wrong := range []uint64{0, 2, 1 << 63} {
				was := binary.LittleEndian.Uint64(grid)
				binary.LittleEndian.PutUint64(grid, wrong)
				_, err = m.Tokens(it)
				require.Error(t, err)
				binary.LittleEndian.PutUint64(grid, was)
			}
			x, _ := it.Lookup("pixel_values")
			x.Data.(*serde.Tensor).Shape[0]--
			_, err = m.Tokens(it)
			require.Error(t, err)
		})
	}
}
