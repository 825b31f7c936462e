package blend_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
)

// BenchmarkMove moves a chunk of 1,000 tokens of models with 7 billion weights: 32 layers, heads of 128
// elements, 8 heads of keys (Mistral) or 32 (Llama 2). Moving and copying the same bytes take turns.
//
// Other programs only make times longer, so the shortest time of each counts. It is taken of as many layers at
// once as there are goroutines, with 32 heads of a quarter of the tokens: that takes about a millisecond, so
// that some go through without an interruption on a busy machine, too.
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
	type part struct {
		dst, chunk blend.KV
		moves      []*blend.Move
	}
	var parts []part
	pieces := shape.Heads / 8
	for from := 0; from < shape.Layers*pieces; from += workers {
		layers := shape
		layers.Layers = min(workers, shape.Layers*pieces-from)
		chunk, err := blend.New(layers, tokens/pieces)
		require.NoError(b, err)
		for i := range chunk.Bytes {
			chunk.Bytes[i] = byte(i*7) & 63 // finite numbers of every dtype
		}
		dst, err := blend.New(layers, tokens/pieces)
		require.NoError(b, err)
		move, err := blend.NewMove(table, dst, 0, blend.Chunk{KV: chunk, Position: 777})
		require.NoError(b, err)
		parts = append(parts, part{dst, chunk, []*blend.Move{move}})
	}
	copying, moving := times{}, times{}
	for b.Loop() {
		for i, p := range parts {
			copying.take(i, func() { copyLayers(p.dst, p.chunk, workers) })
			moving.take(i, func() {
				if err := blend.MoveAll(p.moves, workers); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
	size := float64(shape.Bytes(tokens))
	b.ReportMetric(size/1e9/moving.seconds(), "GB/s")
	b.ReportMetric(size/1e9/copying.seconds(), "copy-GB/s")
	b.ReportMetric(copying.seconds()/moving.seconds(), "of-copy")
	b.ReportMetric(moving.seconds()*1e3, "ms/1000-tokens")
	reportLoad(b)
}

// reportLoad adds how many processes of the machine wanted a processor in the minute before, to be shown
// beside speeds.
func reportLoad(b *testing.B) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return // not Linux
	}
	var load float64
	_, err = fmt.Sscan(string(text), &load)
	require.NoError(b, err)
	b.ReportMetric(load, "load")
}

// times are the shortest ones of parts.
type times map[int]time.Duration

func (t times) take(part int, f func()) {
	start := time.Now()
	f()
	if d := time.Since(start); t[part] == 0 || d < t[part] {
		t[part] = d
	}
}

func (t times) seconds() float64 {
	sum := time.Duration(0)
	for _, d := range t {
		sum += d
	}
	return sum.Seconds()
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
	replacing, copying := times{}, times{}
	for b.Loop() {
		copying.take(0, func() { copy(to, fresh) })
		replacing.take(0, func() {
			if err := shape.Replace(dst.Keys(0), rows, fresh); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.ReportMetric(float64(len(fresh))/1e9/replacing.seconds(), "GB/s")
	b.ReportMetric(float64(len(fresh))/1e9/copying.seconds(), "copy-GB/s")
	b.ReportMetric(copying.seconds()/replacing.seconds(), "of-copy")
	reportLoad(b)
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
