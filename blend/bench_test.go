package blend_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
)

// BenchmarkMove moves a chunk of 1,000 tokens of models with 7 billion weights: 32 layers, heads of 128
// elements, 8 heads of keys (Mistral) or 32 (Llama 2). Moving and copying the same bytes take turns, with the
// same number of goroutines, and the shortest time of each counts, since other programs only make times
// longer.
func BenchmarkMove(b *testing.B) {
	for _, heads := range []int{8, 32} {
		for _, d := range []rope.DType{rope.BF16, rope.F16, rope.F32} {
			for _, workers := range []int{1, runtime.GOMAXPROCS(0)} {
				if heads == 32 && d != rope.BF16 {
					continue
				}
				b.Run(fmt.Sprintf("heads=%d/%s/workers=%d", heads, d, workers), func(b *testing.B) {
					benchmarkMove(b, blend.Shape{Layers: 32, Heads: heads, HeadDim: 128, DType: d}, workers)
				})
			}
		}
	}
}

func benchmarkMove(b *testing.B, shape blend.Shape, workers int) {
	const tokens = 1000
	table, err := rope.New(rope.Config{HeadDim: shape.HeadDim})
	require.NoError(b, err)
	chunk, err := blend.New(shape, tokens)
	require.NoError(b, err)
	for i := range chunk.Bytes {
		chunk.Bytes[i] = byte(i*7) & 63 // finite numbers of every dtype
	}
	dst, err := blend.New(shape, tokens)
	require.NoError(b, err)
	move, err := blend.NewMove(table, dst, 0, blend.Chunk{KV: chunk, Position: 777})
	require.NoError(b, err)
	fastest := func(best *time.Duration, f func()) {
		start := time.Now()
		f()
		if d := time.Since(start); *best == 0 || d < *best {
			*best = d
		}
	}
	var moving, copying time.Duration
	for b.Loop() {
		fastest(&copying, func() { copyLayers(dst, chunk, workers) })
		fastest(&moving, func() {
			if err := blend.MoveAll([]*blend.Move{move}, workers); err != nil {
				b.Fatal(err)
			}
		})
	}
	size := float64(shape.Bytes(tokens))
	b.ReportMetric(size/1e9/moving.Seconds(), "GB/s")
	b.ReportMetric(size/1e9/copying.Seconds(), "copy-GB/s")
	b.ReportMetric(copying.Seconds()/moving.Seconds(), "of-copy")
	b.ReportMetric(moving.Seconds()*1e3, "ms/1000-tokens")
}

// copyLayers is MoveAll without rotations.
func copyLayers(dst, src blend.KV, workers int) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for layer := w; layer < dst.Layers; layer += workers {
				copy(dst.Values(layer), src.Values(layer))
				copy(dst.Keys(layer), src.Keys(layer))
			}
		})
	}
	wg.Wait()
}

// BenchmarkReplace writes 15 % of the rows of a layer, every seventh of them, over what is there.
func BenchmarkReplace(b *testing.B) {
	shape := blend.Shape{Layers: 1, Heads: 8, HeadDim: 128, DType: rope.BF16}
	dst, err := blend.New(shape, 8192)
	require.NoError(b, err)
	var rows []int
	for i := 0; i < dst.Tokens; i += 7 {
		rows = append(rows, i)
	}
	fresh := make([]byte, len(rows)*shape.Row())
	to := make([]byte, len(fresh))
	var replacing, copying time.Duration
	for b.Loop() {
		start := time.Now()
		copy(to, fresh)
		middle := time.Now()
		if err := shape.Replace(dst.Keys(0), rows, fresh); err != nil {
			b.Fatal(err)
		}
		end := time.Now()
		if d := middle.Sub(start); copying == 0 || d < copying {
			copying = d
		}
		if d := end.Sub(middle); replacing == 0 || d < replacing {
			replacing = d
		}
	}
	b.ReportMetric(float64(len(fresh))/1e9/replacing.Seconds(), "GB/s")
	b.ReportMetric(copying.Seconds()/replacing.Seconds(), "of-copy")
}

// BenchmarkDeviation compares the keys of a layer.
func BenchmarkDeviation(b *testing.B) {
	for _, d := range []rope.DType{rope.BF16, rope.F32} {
		b.Run(d.String(), func(b *testing.B) {
			const rows, width = 1000, 1024
			fresh, old := make([]byte, rows*width*d.Size()), make([]byte, rows*width*d.Size())
			out := make([]float64, rows)
			b.SetBytes(int64(2 * len(fresh)))
			for b.Loop() {
				if err := blend.Deviation(out, fresh, old, width, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
