package serde

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The scenarios of upstream's tests/v1/test_serial_utils.py, as far as they are
// about tensors and items; docs/testing.md has the whole list.

func filled(dtype DType, b byte, shape ...int) *Tensor {
	t := &Tensor{DType: dtype, Shape: shape}
	n, err := t.NBytes()
	if err != nil {
		panic(err)
	}
	t.Data = make([]byte, n)
	for i := range t.Data {
		t.Data[i] = b + byte(i)
	}
	return t
}

// TestUpstreamEncodeDecode: a mix of small and large, bfloat16, empty and
// scalar tensors in nested lists. The seven of 256 bytes and more become frames
// of their own.
func TestUpstreamEncodeDecode(t *testing.T) {
	it := &Item{Elems: []Elem{
		{Key: "bf16", Data: filled("bfloat16", 1, 20, 64)},
		{Key: "small", Data: filled("int64", 2, 10)},
		{Key: "list", Data: []any{
			filled("float32", 3, 1, 10), filled("float32", 4, 3, 5, 4000), filled("int64", 5, []int{}...), filled("int64", 6, 1000),
			[]any{filled("uint8", 7, 256), filled("uint8", 8, 255), filled("float16", 9, 20, 100)},
		}},
		{Key: "empty", Data: filled("float32", 0, 0, 4)},
		{Key: "big", Data: filled("float64", 10, 4, 25)},
		{Key: "bool", Data: &Tensor{DType: "bool", Shape: []int{2, 150}, Data: make([]byte, 300)}},
	}}
	plan, err := NewPlan(it, Options{})
	require.NoError(t, err)
	frames := plan.Frames()
	require.Len(t, frames, 8)

	back, err := DecodeItem(frames, Options{})
	require.NoError(t, err)
	require.Equal(t, it, back)

	// Written into a buffer that the caller has used before.
	buf := make([]byte, plan.DataLen)
	for range 2 {
		for i := range buf {
			buf[i] = 0xee
		}
		require.NoError(t, plan.CopyTo(buf))
		var joined []byte
		for _, f := range frames {
			joined = append(joined, f...)
		}
		require.Equal(t, joined, buf)
	}
	require.ErrorContains(t, plan.CopyTo(buf[1:]), "the destination has", "of exactly the right length")

	// The frames live as long as what was decoded from them, and a clone longer.
	clone := Clone(back)
	frames[1][0]++
	require.NotEqual(t, clone, Value(back), "decoded in place")
	frames[1][0]--
	require.Equal(t, clone, Value(back))
}
