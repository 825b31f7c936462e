package encoder_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
)

// BenchmarkHead is the head of an image of a Gemma-3-27B, written and read.
func BenchmarkHead(b *testing.B) {
	o := tier.Object{Key: tier.Key{Space: "gemma", Name: "abc"}, Size: 256 * 5376 * 2, Note: []byte("bfloat16 256 5376")}
	for name, layout := range map[string]encoder.Tree{"checksum": tree, "plain": {Plain: true}} {
		head, err := layout.AppendHead(nil, o, 1)
		require.NoError(b, err)
		b.Run("append/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				head, _ = layout.AppendHead(head[:0], o, 1)
			}
		})
		file := bytes.NewReader(append(head, make([]byte, o.Size)...))
		b.Run("parse/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := layout.ParseHead("abc/encoder_cache.safetensors", file, file.Size()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
