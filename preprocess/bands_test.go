package preprocess

import (
	"context"
	"crypto/sha256"
	"image"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBandsMakeTheSame makes items of large images with one goroutine and with several.
func TestBandsMakeTheSame(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for run := range runs {
		p := processorOf(t, run)
		for _, name := range []string{"media/hubble_deep_field.jpg", "media/rocket.jpg", "media/astronaut.png"} {
			sums := map[[32]byte]bool{}
			for _, n := range []int{1, 2, maxBands} {
				runtime.GOMAXPROCS(n)
				l, it, err := process(p, readImage(t, name))
				require.NoError(t, err)
				part := resizing{in: l.size}
				require.Equal(t, min(n, l.size.X*l.size.Y/bandPixels), part.bands())
				sums[sha256.Sum256(tensorOf(it, "pixel_values").Data)] = true
			}
			require.Len(t, sums, 1, "%s by %s", name, run)
		}
	}
}

// endingForAll is a context that ends after some looks of any goroutine.
type endingForAll struct {
	context.Context
	looks atomic.Int64
}

func (e *endingForAll) Err() error {
	if e.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestBandsEndWithTheirContext ends Fill while the bands are made; goleak looks for
// goroutines that stay.
func TestBandsEndWithTheirContext(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(maxBands))
	file := readImage(t, "media/hubble_deep_field.jpg")
	p := processorOf(t, "llava-336")
	l, it, err := process(p, file)
	require.NoError(t, err)
	fill := func(looks int64) (rest int64, err error) {
		ctx := &endingForAll{Context: t.Context()}
		ctx.looks.Store(looks)
		err = p.Fill(ctx, file, l, func(key string) []byte { return tensorOf(it, key).Data })
		return ctx.looks.Load(), err
	}
	const plenty = 1 << 30
	rest, err := fill(plenty)
	require.NoError(t, err)
	looks := plenty - rest
	for _, before := range []int64{1, 10, 100, 300} { // of the lines of the bands
		_, err := fill(looks - before)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// panicking is an image with a line that can't be made.
type panicking struct {
	line int
	made *atomic.Int64
}

func (p panicking) fork() source { return p }

func (p panicking) row(y int, buf []byte) []byte {
	if y == p.line {
		panic("no such line")
	}
	p.made.Add(1)
	return buf
}

// TestPanicInABandIsTheCallers: it can be recovered from, and nobody works on then.
func TestPanicInABandIsTheCallers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(maxBands))
	r := resizing{in: image.Pt(1024, 1024), out: image.Pt(1024, 1024), part: image.Rect(0, 0, 1024, 1024)}
	require.Equal(t, maxBands, r.bands())
	for _, line := range []int{0, 300, 1023} {
		p := panicking{line, new(atomic.Int64)}
		require.PanicsWithValue(t, "no such line", func() { _ = r.run(t.Context(), p, func(int, []byte) {}) })
		made := p.made.Load()
		runtime.Gosched()
		require.Equal(t, made, p.made.Load())
	}
}

// TestMuchMemoryOfLinesIsNotKept holds for what one wide image takes.
func TestMuchMemoryOfLinesIsNotKept(t *testing.T) {
	l := &lines{pairs: make([]pair, maxReused/maxBands/24+1)}
	l.giveBack()
	for range 10 {
		require.NotSame(t, l, linePool.Get())
	}
}
