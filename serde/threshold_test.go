package serde

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInlineThreshold(t *testing.T) {
	for _, c := range []struct{ threshold, n, frames int }{
		{0, 255, 1}, {0, 256, 2}, {1, 0, 1}, {1, 1, 2}, {-1, 1, 2}, {100, 99, 1}, {100, 100, 2},
	} {
		p, err := NewPlan(zeros("uint8", c.n), Options{InlineThreshold: c.threshold})
		require.NoError(t, err)
		require.Len(t, p.Frames(), c.frames, "%+v", c)
	}
}

// TestEmptyTensorWithThreshold0 compares with the frames that vLLM 0.32.0 makes with
// VLLM_MSGPACK_ZERO_COPY_THRESHOLD set to 0 and below: what is not smaller than the
// threshold gets a frame, also if that is empty.
func TestEmptyTensorWithThreshold0(t *testing.T) {
	tensor := func(d DType, data []byte, shape ...int) func(Options) ([][]byte, error) {
		return func(o Options) ([][]byte, error) {
			p, err := NewPlan(&Tensor{DType: d, Shape: shape, Data: data}, o)
			if err != nil {
				return nil, err
			}
			whole := make([]byte, p.DataLen)
			require.NoError(t, p.CopyTo(whole))
			m, _, err := ParseMetadata(p.Metadata)
			require.NoError(t, err)
			back, err := DecodeValue(m, whole, o)
			require.NoError(t, err)
			require.Equal(t, &Tensor{DType: d, Shape: shape, Data: data}, back)
			return p.Frames(), nil
		}
	}
	for _, c := range []struct {
		name             string
		encode           func(Options) ([][]byte, error)
		zero, one, usual []string // with a threshold of 0, 1 and 256
	}{
		{
			"empty tensor", tensor("float32", []byte{}, 0, 4),
			[]string{"93a7666c6f6174333292000401", ""}, []string{"93a7666c6f61743332920004c70003"}, []string{"93a7666c6f61743332920004c70003"},
		}, {
			"scalar tensor", tensor("uint8", []byte{7}, []int{}...),
			[]string{"93a575696e74389001", "07"}, []string{"93a575696e74389001", "07"}, []string{"93a575696e743890d40307"},
		}, {
			"tensor", tensor("uint8", []byte{1}, 1),
			[]string{"93a575696e7438910101", "01"}, []string{"93a575696e7438910101", "01"}, []string{"93a575696e74389101d40301"},
		},
	} {
		for threshold, want := range map[int][]string{-1: c.zero, -1 << 40: c.zero, 1: c.one, 0: c.usual, 256: c.usual} {
			f, err := c.encode(Options{InlineThreshold: threshold})
			require.NoError(t, err)
			var got []string
			for _, b := range f {
				got = append(got, hex.EncodeToString(b))
			}
			require.Equal(t, want, got, "%s, InlineThreshold %d", c.name, threshold)
		}
	}
}

// TestEmptyTensorsOfAnItemWithThreshold0: a frame each, in the order of the
// document, with and without Data.
func TestEmptyTensorsOfAnItemWithThreshold0(t *testing.T) {
	empty := func() *Tensor { return &Tensor{DType: "float32", Shape: []int{0, 4}, Data: []byte{}} }
	it := &Item{Elems: []Elem{
		{Key: "a", Data: []any{empty(), zeros("uint8", 3), []any{empty()}}},
		{Key: "b", Data: empty()},
	}}
	for _, v := range []*Item{it, strip(it)} {
		p, err := NewPlan(v, Options{InlineThreshold: -1})
		require.NoError(t, err)
		m, _, err := ParseMetadata(p.Metadata)
		require.NoError(t, err)
		require.Equal(t, []int64{0, 3, 0, 0}, m.Lens[1:])
		for _, pl := range p.Tensors {
			require.False(t, pl.Inline)
		}
		data := make([]byte, p.DataLen)
		require.NoError(t, p.CopyTo(data))
		back, err := DecodeValue(m, data, Options{})
		require.NoError(t, err)
		require.Equal(t, it, back)
	}
}
