package serde_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// usual is what Qwen2-VL makes of a small image: flat pixel values in bfloat16, and the
// size of its grid.
func usual(rows int) *serde.Item {
	pixels := &serde.Tensor{DType: "bfloat16", Shape: []int{rows, 1176}, Data: make([]byte, rows*1176*2)}
	grid := &serde.Tensor{DType: "int64", Shape: []int{3}, Data: make([]byte, 24)}
	return &serde.Item{Modality: "image", Elems: []serde.Elem{
		{Key: "pixel_values", Data: pixels, Field: serde.FlatFromSizes(rows)},
		{Key: "image_grid_thw", Data: grid, Field: serde.Field{KeepOnCPU: true}},
	}}
}

func usualAddress() serde.Address {
	a := serde.Address{Address: 123456789, ID: 4321}
	for i := range a.Signature {
		a.Signature[i] = byte(i * 37)
	}
	return a
}

// usualPayload is a chunk without its reader count.
func usualPayload(tb testing.TB) []byte {
	plan, err := serde.NewPlan(usual(2), serde.Options{})
	require.NoError(tb, err)
	data := make([]byte, plan.DataLen)
	require.NoError(tb, plan.CopyTo(data))
	return append(append([]byte{}, plan.Metadata...), data...)
}

func BenchmarkEncodeAddress(b *testing.B) {
	a := usualAddress()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := serde.EncodeAddress(a, "image", serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendAddress(b *testing.B) {
	a := usualAddress()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if dst, err = serde.AppendAddress(dst[:0], a, "image", serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAddress(b *testing.B) {
	doc, err := serde.EncodeAddress(usualAddress(), "image", serde.Options{})
	require.NoError(b, err)
	frames := [][]byte{doc}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := serde.DecodeAddress(frames, serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseAddress(b *testing.B) {
	doc, err := serde.EncodeAddress(usualAddress(), "image", serde.Options{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		it, err := serde.DecodeItem([][]byte{doc}, serde.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := serde.ParseAddress(it, serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewPlan(b *testing.B) {
	it := usual(2)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := serde.NewPlan(it, serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlanReset(b *testing.B) {
	it := usual(2)
	var plan serde.Plan
	b.ReportAllocs()
	for b.Loop() {
		if err := plan.Reset(it, serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecoder(b *testing.B) {
	payload := usualPayload(b)
	var d serde.Decoder
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(payload, serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodePayload(b *testing.B) {
	payload := usualPayload(b)
	b.ReportAllocs()
	for b.Loop() {
		m, data, err := serde.ParsePayload(payload)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := serde.DecodeValue(m, data, serde.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
