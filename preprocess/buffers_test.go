package preprocess

import (
	"bytes"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReusedMemoryLeavesNothing decodes into memory that holds something else.
func TestReusedMemoryLeavesNothing(t *testing.T) {
	files := images(t)
	for _, name := range []string{"grace_hopper.jpg", "rocket.jpg"} {
		files[name] = readImage(t, "media/"+name)
	}
	for name, file := range files {
		size, err := Inspect(file)
		if err != nil {
			continue
		}
		lines := func(b *buffers) (out []byte) {
			src, err := decode(t.Context(), file, size, b)
			require.NoError(t, err)
			buf := make([]byte, channels*size.X)
			for y := range size.Y {
				out = append(out, src.row(y, buf)...)
			}
			return out
		}
		used := &buffers{}
		want := lines(used)
		for _, b := range [][]byte{used.samples, used.turned} {
			copy(b, bytes.Repeat([]byte{0xa5}, len(b)))
		}
		for i := range used.coefficients {
			for k := range used.coefficients[i] {
				used.coefficients[i][k] = 0x5a5a
			}
		}
		for class := range used.steps {
			for id := range used.steps[class] {
				for i := range used.steps[class][id] {
					used.steps[class][id][i] = 0x05050505
				}
			}
		}
		require.Equal(t, want, lines(used), name)
	}
}

// TestMuchMemoryIsNotKept holds for what one large image takes.
func TestMuchMemoryIsNotKept(t *testing.T) {
	for _, b := range []*buffers{
		{samples: make([]byte, maxReused+1)},
		{turned: make([]byte, maxReused+1)},
		{coefficients: make([][64]int16, maxReused/128+1)},
	} {
		b.giveBack()
		for range 10 { // a pool may drop what it gets, but never has this
			require.NotSame(t, b, takeBuffers())
		}
	}
}

// TestFillAllocatesLittle holds for photos in JPEG files: an eighth of the decoded one.
func TestFillAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools drop what they get")
	}
	file := readImage(t, "media/hubble_deep_field.jpg")
	for _, run := range []string{"llava-336", "qwen2.5-vl"} {
		p := processorOf(t, run)
		l, it, err := process(p, file)
		require.NoError(t, err)
		least := uint64(math.MaxUint64) // of several, since the collector empties the pools
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.NoError(t, p.Fill(t.Context(), file, l, func(key string) []byte { return tensorOf(it, key).Data }))
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		require.Less(t, least, uint64(channels*l.size.X*l.size.Y/8), run)
	}
}
