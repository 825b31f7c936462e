package serde

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// payloadOf is a chunk without its reader count.
func payloadOf(t require.TestingT, v Value, o Options) []byte {
	plan, err := NewPlan(v, o)
	require.NoError(t, err)
	b := make([]byte, plan.DataLen)
	require.NoError(t, plan.CopyTo(b))
	return append(bytes.Clone(plan.Metadata), b...)
}

// decodePayload is Decoder.Decode in steps, into memory of its own.
func decodePayload(b []byte, o Options) (Value, error) {
	m, data, err := ParsePayload(b)
	if err != nil {
		return nil, err
	}
	return DecodeValue(m, data, o)
}

// sameValue compares and treats a NaN as equal to itself.
func sameValue(t *rapid.T, want, got Value) {
	w, isItem := want.(*Item)
	if !isItem {
		require.Equal(t, want, got)
		return
	}
	require.IsType(t, want, got)
	same(t, w, got.(*Item))
}

// TestPropertyDecoder: a Decoder gives what DecodeValue gives, whatever it decoded before
// and however damaged that was.
func TestPropertyDecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Decoder
		for range rapid.IntRange(1, 8).Draw(t, "values") {
			o := drawOptions(t)
			var v Value
			switch rapid.IntRange(0, 4).Draw(t, "value") {
			case 0:
				v = drawTensor(t)
			case 1:
				v = Pickle(rapid.SliceOfN(rapid.Byte(), 1, 10).Draw(t, "pickle"))
			default:
				v = drawItem(t, o.Generation.ItemForm)
			}
			b := payloadOf(t, v, o)
			if rapid.Bool().Draw(t, "damaged") {
				b[rapid.IntRange(0, min(len(b)-1, 400)).Draw(t, "byte")] = rapid.Byte().Draw(t, "is")
			}
			want, wantErr := decodePayload(b, o)
			got, err := d.Decode(b, o)
			require.Equal(t, wantErr, err)
			if err == nil {
				sameValue(t, want, got)
			}
		}
	})
}

// TestDecoderKeepsNothingOfTheLastValue but its keys, which the next value probably has.
func TestDecoderKeepsNothingOfTheLastValue(t *testing.T) {
	var d Decoder
	wide := &Item{}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		wide.Elems = append(wide.Elems, Elem{Key: key, Data: filled("uint8", 1, 300), Field: FlatFromSizes(1, 2, 3)})
	}
	for range 3 {
		_, err := d.Decode(payloadOf(t, wide, Options{}), Options{})
		require.NoError(t, err)
	}
	v, err := d.Decode(payloadOf(t, filled("int32", 1, 2), Options{}), Options{})
	require.NoError(t, err)
	require.Equal(t, filled("int32", 1, 2), v)
	for _, e := range d.mem.elems.all {
		require.Equal(t, Elem{Key: e.Key}, e)
	}
	for _, x := range d.mem.tensors.all[1:] {
		require.Zero(t, x)
	}
	for _, l := range d.mem.lists.all {
		require.Nil(t, l)
	}
	for _, f := range d.frames[:cap(d.frames)][len(d.frames):] {
		require.Nil(t, f)
	}
}
