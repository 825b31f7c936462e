package preprocess

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSmartResize compares with what transformers' function returned.
func TestSmartResize(t *testing.T) {
	f, err := os.Open(filepath.Join("testdata", "smart_resize.txt"))
	require.NoError(t, err)
	defer f.Close()
	n := 0
	var p *qwenProcessor
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var a [4]int
		if fields, err := fmt.Sscan(lines.Text(), &a[0], &a[1], &a[2], &a[3]); fields == 3 {
			p = &qwenProcessor{patch: a[0] / 2, merge: 2, frames: 1, minPixels: a[1], maxPixels: a[2], values: &pixelValues{dtype: "uint8", size: 1}}
			continue
		} else {
			require.NoError(t, err)
		}
		l, err := p.Layout(image.Pt(a[0], a[1]))
		if a[2] == 0 {
			require.ErrorIs(t, err, ErrImage, lines.Text())
		} else {
			require.NoError(t, err, lines.Text())
			require.Equal(t, [3]int{1, 2 * a[3], 2 * a[2]}, l.Grid, lines.Text())
		}
		n++
	}
	require.Equal(t, 2000, n)
}

// solid is an image in memory.
type solid struct {
	pix   []byte
	width int
}

func (s solid) row(y int, _ []byte) []byte { return s.pix[channels*s.width*y:][:channels*s.width] }
func (s solid) fork() source               { return s }

func resized(t require.TestingT, src source, r resizing) []byte {
	stride := channels * r.part.Dx()
	out := make([]byte, stride*r.part.Dy())
	require.NoError(t, r.run(context.Background(), src, func(y int, line []byte) {
		if copy(out[y*stride:][:stride], line) != len(line) {
			panic("a line is too long")
		}
	}))
	return out
}

// TestResize compares with what torch made of the same bytes.
func TestResize(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "resize.json"))
	require.NoError(t, err)
	var cases [][5]any
	require.NoError(t, json.Unmarshal(b, &cases))
	require.Len(t, cases, 60)
	for _, c := range cases {
		n := func(i int) int { return int(c[i].(float64)) }
		pix := make([]byte, 3*n(0)*n(1))
		x := uint32(1)
		for i := range pix {
			x = x*1664525 + 1013904223
			pix[i] = byte(x >> 24)
		}
		want, err := base64.StdEncoding.DecodeString(c[4].(string))
		require.NoError(t, err)
		to := image.Pt(n(2), n(3))
		got := resized(t, solid{pix, n(0)}, resizing{in: image.Pt(n(0), n(1)), out: to, part: image.Rectangle{Max: to}})
		require.Equal(t, want, got, "%v", c[:4])
	}
}

// TestResizePart cuts the same out of a resized image as is made by itself.
func TestResizePart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string) int { return rapid.IntRange(1, 40).Draw(t, name) }
		in, out := image.Pt(side("w"), side("h")), image.Pt(side("to w"), side("to h"))
		src := solid{rapid.SliceOfN(rapid.Byte(), 3*in.X*in.Y, 3*in.X*in.Y).Draw(t, "pixels"), in.X}
		part := image.Rect(rapid.IntRange(0, out.X-1).Draw(t, "x"), rapid.IntRange(0, out.Y-1).Draw(t, "y"), out.X, out.Y)
		part.Max.X -= rapid.IntRange(0, part.Dx()-1).Draw(t, "less w")
		part.Max.Y -= rapid.IntRange(0, part.Dy()-1).Draw(t, "less h")
		whole := resized(t, src, resizing{in: in, out: out, part: image.Rectangle{Max: out}})
		var want []byte
		for y := part.Min.Y; y < part.Max.Y; y++ {
			want = append(want, whole[3*(y*out.X+part.Min.X):][:3*part.Dx()]...)
		}
		require.Equal(t, want, resized(t, src, resizing{in: in, out: out, part: part}))
	})
}

// TestResizeFlat keeps one colour one colour.
func TestResizeFlat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string) int { return rapid.IntRange(1, 300).Draw(t, name) }
		in, out := image.Pt(side("w"), side("h")), image.Pt(side("to w"), side("to h"))
		color := []byte{rapid.Byte().Draw(t, "r"), rapid.Byte().Draw(t, "g"), rapid.Byte().Draw(t, "b")}
		got := resized(t, solid{bytes.Repeat(color, in.X*in.Y), in.X}, resizing{in: in, out: out, part: image.Rectangle{Max: out}})
		require.Len(t, got, 3*out.X*out.Y)
		for i, v := range got { // the weights are rounded, their sum may be off a little
			require.InDelta(t, color[i%3], v, 1)
		}
	})
}

// TestSumsFit holds for the sums of all lines and outputs: each is in 32 bits, as pair
// needs it.
func TestSumsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out := rapid.IntRange(1, 3000).Draw(t, "in"), rapid.IntRange(1, 3000).Draw(t, "out")
		f := newFilter(in, out, 0, out)
		if f == nil {
			return
		}
		for i := range out {
			sum := int64(1) << f.shift >> 1
			for _, w := range f.weights[i*f.width:][:f.count[i]] {
				sum += 255 * int64(max(w, -w))
			}
			require.Less(t, sum, int64(1)<<31)
		}
	})
}
