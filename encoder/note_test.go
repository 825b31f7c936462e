package encoder_test

import (
	"bytes"
	"encoding/hex"
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
	f.Add([]byte("\x64\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0a\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("uint8 0 9223372036854775807"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n, err := encoder.ParseLMCacheNote(text); err == nil && text[8] != 1 { // one dtype has two numbers
			again, err := n.LMCache()
			require.NoError(t, err)
			require.Equal(t, text, again)
		}
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

// TestLMCacheNote has vectors that lmcache 0.5.6 made, and its numbers of dtypes.
func TestLMCacheNote(t *testing.T) {
	for text, vector := range map[string]string{
		"bfloat16 10 5":     "64000000 07000000 03000000 0a000000 05000000 00000000 00000000",
		"float16 1 1":       "02000000 07000000 02000000 01000000 01000000 00000000 00000000",
		"float32 256 5376":  "00005400 07000000 04000000 00010000 00150000 00000000 00000000",
		"float64 1 1":       "08000000 07000000 05000000 01000000 01000000 00000000 00000000",
		"uint8 1 1":         "01000000 07000000 06000000 01000000 01000000 00000000 00000000",
		"float8_e4m3fn 1 1": "01000000 07000000 07000000 01000000 01000000 00000000 00000000",
		"float8_e5m2 1 1":   "01000000 07000000 08000000 01000000 01000000 00000000 00000000",
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(vector, " ", ""))
		require.NoError(t, err)
		n, err := encoder.ParseNote([]byte(text))
		require.NoError(t, err)
		got, err := n.LMCache()
		require.NoError(t, err)
		require.Equal(t, want, got, text)
		back, err := encoder.ParseLMCacheNote(got)
		require.NoError(t, err)
		require.Equal(t, n, back)
		for i := range 8 * len(got) {
			damaged := bytes.Clone(got)
			damaged[i/8] ^= 1 << (i % 8)
			if back, err = encoder.ParseLMCacheNote(damaged); err == nil {
				require.NotEqual(t, n.DType, back.DType, "only another dtype of the same size fits")
			}
		}
	}
	first, err := encoder.ParseLMCacheNote([]byte("\x02\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	require.NoError(t, err)
	require.Equal(t, "float16 1 1", first.String(), "the other number of the dtype")
	for _, n := range []encoder.Note{
		{DType: "int8", Shape: []int{1, 1}}, {DType: "bfloat16", Shape: []int{4}}, {DType: "bfloat16", Shape: []int{1, 2, 3}}, {DType: "bfloat16", Shape: []int{0, 4}},
		{DType: "uint8", Shape: []int{1 << 31, 1}}, {DType: "bf16", Shape: []int{1, 1}}, {DType: "", Shape: []int{1, 1}}, {DType: "bfloat16", Shape: []int{-1, -1}},
	} {
		_, err := n.LMCache()
		require.ErrorIs(t, err, fs.ErrInvalid, "%v", n)
	}
	for _, vector := range []string{
		"", "64000000", "640000000700000003000000 0a0000000500000000000000000000 0000", "640000000100000003000000 0a00000005000000 0000000000000000",
		"640000000700000000000000 0a00000005000000 0000000000000000", "640000000700000009000000 0a00000005000000 0000000000000000", "650000000700000003000000 0a00000005000000 0000000000000000",
		"640000000700000003000000 0a00000005000000 0100000000000000", "000000000700000003000000 0000000005000000 0000000000000000", "000000000700000006000000 0000008000000080 0000000000000000",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(vector, " ", ""))
		require.NoError(t, err, vector)
		_, err = encoder.ParseLMCacheNote(b)
		require.ErrorIs(t, err, fs.ErrInvalid, vector)
	}
}
