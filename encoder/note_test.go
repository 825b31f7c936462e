package encoder_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/serde"
)

func TestNote(t *testing.T) {
	for text, want := range map[string]struct {
		dtype serde.DType
		shape []int
		size  int64
	}{
		"bfloat16 256 5376":    {"bfloat16", []int{256, 5376}, 256 * 5376 * 2},
		"float32":              {"float32", []int{}, 4},
		"uint8 0 7":            {"uint8", []int{0, 7}, 0},
		"float4_e2m1fn_x2 2 3": {"float4_e2m1fn_x2", []int{2, 3}, 6},
	} {
		n, err := encoder.ParseNote([]byte(text))
		require.NoError(t, err)
		require.Equal(t, encoder.Note{DType: want.dtype, Shape: want.shape}, n)
		require.Equal(t, text, n.String())
		size, err := n.Size()
		require.NoError(t, err)
		require.Equal(t, want.size, size)
	}
	for _, text := range []string{
		"", " ", "bf16 1", "BF16 1", "torch.bfloat16 1", "half 1", "bfloat16 ", "bfloat16  1", " bfloat16", "bfloat16 1 ", "bfloat16 01", "bfloat16 +1", "bfloat16 -1",
		"bfloat16 1.0", "bfloat16 0x1", "bfloat16 1_0", "bfloat16\n1", "bfloat16 9223372036854775808", "bfloat16 9223372036854775807", "bfloat16 4294967296 4294967296",
		"bfloat16" + strings.Repeat(" 1", 65), "bfloat16 " + strings.Repeat("1", 5000), "bfloat16 \xff",
	} {
		_, err := encoder.ParseNote([]byte(text))
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", text)
		require.Less(t, len(err.Error()), 500)
	}
}

func FuzzNote(f *testing.F) {
	f.Add([]byte("bfloat16 256 5376"))
	f.Add([]byte("float32"))
	f.Add([]byte("uint8 0 9223372036854775807"))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := encoder.ParseNote(text)
		if err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			return
		}
		require.Equal(t, string(text), n.String())
		size, err := n.Size()
		require.NoError(t, err)
		require.GreaterOrEqual(t, size, int64(0))
	})
}
