package enginecore_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func TestGoldenNDArrays(t *testing.T) {
	cases := map[string]*serde.NDArray{
		"f4":      {DType: "<f4", Shape: []int{3}, Data: []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
		"u1_256":  {DType: "|u1", Shape: []int{256}, Data: seq(256, 1, 0)},
		"u1_255":  {DType: "|u1", Shape: []int{255}, Data: seq(255, 1, 0)},
		"zero_d":  {DType: "<f8", Shape: []int{}, Data: []byte{0, 0, 0, 0, 0, 0, 4, 0x40}},
		"be":      {DType: ">i4", Shape: []int{2}, Data: []byte{0, 0, 0, 0, 0, 0, 0, 1}},
		"fortran": {DType: "<i8", Shape: []int{2, 3}, Data: nil},
		"bool":    {DType: "|b1", Shape: []int{2}, Data: []byte{1, 0}},
		"str":     {DType: "<U2", Shape: []int{2}, Data: []byte{'a', 0, 0, 0, 'b', 0, 0, 0, 'c', 0, 0, 0, 0, 0, 0, 0}},
		"c8":      {DType: "<c8", Shape: []int{1}, Data: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
		"empty":   {DType: "<f2", Shape: []int{0, 3}, Data: []byte{}},
	}
	for i := range 6 {
		cases["fortran"].Data = binary.LittleEndian.AppendUint64(cases["fortran"].Data, uint64(i))
	}
	for _, f := range goldentest.Files(t, "serde") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			p := newPair(t, g, 0)
			checked, skipped := 0, map[string]int{}
			for _, r := range goldentest.Rows[struct {
				goldentest.Frames
				Err string
			}](t, f, "ndarrays") {
				if r.Err != "" {
					skipped["raise in Python (dates, objects, numpy scalars)"]++
					continue
				}
				a := cases[r.Name]
				require.NotNil(t, a, r.Name)
				frames, err := p.EncodeNDArray(a)
				require.NoError(t, err, r.Name)
				r.Equal(t, frames)
				back, err := enginecore.DecodeNDArray(frames)
				require.NoError(t, err, r.Name)
				require.Equal(t, a.DType, back.DType)
				require.Equal(t, a.Shape, back.Shape)
				require.True(t, bytes.Equal(a.Data, back.Data))
				checked++
			}
			require.Equal(t, len(cases), checked)
			f.Report(t, checked, skipped)
		})
	}
}

// TestNDArrayWithThreshold0 compares with the frames that vLLM 0.32.0 makes with
// VLLM_MSGPACK_ZERO_COPY_THRESHOLD set to 0 and below, as
// serde.TestEmptyTensorWithThreshold0 does for tensors.
func TestNDArrayWithThreshold0(t *testing.T) {
	for _, c := range []struct {
		name             string
		array            serde.NDArray
		zero, one, usual []string // with a threshold of 0, 1 and 256
	}{
		{
			"empty", serde.NDArray{DType: "<f4", Shape: []int{0, 4}, Data: []byte{}},
			[]string{"93a33c663492000401", ""}, []string{"93a33c6634920004c70003"}, []string{"93a33c6634920004c70003"},
		}, {
			"0-d", serde.NDArray{DType: "<f8", Shape: []int{}, Data: []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}},
			[]string{"93a33c663890d703000000000000f83f"}, []string{"93a33c663890d703000000000000f83f"}, []string{"93a33c663890d703000000000000f83f"},
		}, {
			"one byte", serde.NDArray{DType: "|u1", Shape: []int{1}, Data: []byte{1}},
			[]string{"93a37c7531910101", "01"}, []string{"93a37c7531910101", "01"}, []string{"93a37c75319101d40301"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for threshold, want := range map[int][]string{-1: c.zero, -1 << 40: c.zero, 1: c.one, 0: c.usual, 256: c.usual} {
				f, err := newPair(t, nil, threshold).EncodeNDArray(&c.array)
				require.NoError(t, err)
				var got []string
				for _, b := range f {
					got = append(got, hex.EncodeToString(b))
				}
				require.Equal(t, want, got, "InlineThreshold %d", threshold)
				back, err := enginecore.DecodeNDArray(f)
				require.NoError(t, err)
				require.Equal(t, &c.array, back)
			}
		})
	}
}

func TestEncodeNDArrayRefuses(t *testing.T) {
	for text, a := range map[string]*serde.NDArray{
		`"<M8" is no numpy type string`:           {DType: "<M8"},
		`"|O" is no numpy type string`:            {DType: "|O"},
		`"<f3" is no numpy type string`:           {DType: "<f3"},
		"<f4 [1] takes 4 bytes, Data has 0":       {DType: "<f4", Shape: []int{1}},
		`"<U99999999999" is no numpy type string`: {DType: "<U99999999999"},
	} {
		t.Run(text, func(t *testing.T) {
			_, err := newest(t).EncodeNDArray(a)
			invalid(t, err, text)
		})
	}
}
