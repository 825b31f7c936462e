package serde_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
)

// TestAllocations: what the way of an image through a frontend and a worker may allocate
// here. The counts are part of what this package promises.
func TestAllocations(t *testing.T) {
	a, it, payload := usualAddress(), usual(2), usualPayload(t)
	doc, err := serde.EncodeAddress(a, "image", serde.Options{})
	require.NoError(t, err)
	frames := [][]byte{doc}
	plan, err := serde.NewPlan(it, serde.Options{})
	require.NoError(t, err)
	dst, data := make([]byte, 0, 256), make([]byte, plan.DataLen)
	var d serde.Decoder
	m, value, err := serde.ParsePayload(payload)
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		most float64
		do   func() error
	}{
		{"AppendAddress", 0, func() error { _, err := serde.AppendAddress(dst, a, "image", serde.Options{}); return err }},
		{"EncodeAddress", 1, func() error { _, err := serde.EncodeAddress(a, "image", serde.Options{}); return err }},
		{"DecodeAddress", 0, func() error { _, _, err := serde.DecodeAddress(frames, serde.Options{}); return err }},
		{"NewPlan", 2, func() error { _, err := serde.NewPlan(it, serde.Options{}); return err }},
		{"Plan.Reset", 0, func() error { return plan.Reset(it, serde.Options{}) }},
		{"Plan.CopyTo", 0, func() error { return plan.CopyTo(data) }},
		{"Decoder.Decode", 0, func() error { _, err := d.Decode(payload, serde.Options{}); return err }},
		{"DecodeValue", 3, func() error { _, err := serde.DecodeValue(m, value, serde.Options{}); return err }}, // and two keys
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			got := testing.AllocsPerRun(100, func() { err = c.do() })
			require.NoError(t, err)
			require.LessOrEqual(t, got, c.most)
		})
	}
}
