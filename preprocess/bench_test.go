package preprocess

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkFill makes items of photos into memory that is there.
func BenchmarkFill(b *testing.B) {
	for _, run := range []string{"llava-336", "qwen2.5-vl", "qwen2-vl-normalized"} {
		for _, name := range []string{"media/coffee.png", "media/hubble_deep_field.jpg"} {
			b.Run(run+"/"+name, func(b *testing.B) {
				p, file := processorOf(b, run), readImage(b, name)
				size, err := Inspect(file)
				require.NoError(b, err)
				l, err := p.Layout(size)
				require.NoError(b, err)
				_, it, err := process(p, file)
				require.NoError(b, err)
				tensor := func(key string) []byte { return tensorOf(it, key).Data }
				b.SetBytes(int64(channels * size.X * size.Y))
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, p.Fill(context.Background(), file, l, tensor))
				}
			})
		}
	}
}
