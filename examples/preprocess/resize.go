package preprocess

import (
	"context"
	"image"
	"math"
	"sync"
)

const channels = 3

// filter is how one side of an image is resized: sums of neighbours with
// fixed-point weights. It is torch's antialiased bicubic interpolation of uint8
// tensors on the CPU (torch 2.13), which has the kernel of Pillow, but 16-bit
// weights where Pillow has 22 bits and more.
type filter struct {
	shift   uint
	width   int // most taps of one output
	first   []int
	count   []int
	weights []int32 // width for each output
}

// maxShift is the most bits of a weight after the point.
const maxShift = 22

// newFilter returns the filter for the outputs from..to-1 of a side that is
// resized from in to out pixels, nil if they are equal.
func newFilter(in, out, from, to int) *filter {
	if in == out {
		return nil
	}
	scale := float64(in) / float64(out)
	stretch := max(scale, 1) // of the kernel: reducing, it covers as many inputs as make up its outputs
	inverse := 1 / stretch
	support := 2 * stretch
	width := 2*int(math.Ceil(support)) + 1
	f := &filter{
		width: width, first: make([]int, to-from), count: make([]int, to-from),
		weights: make([]int32, width*(to-from)),
	}
	exact := make([]float64, width*(to-from))
	spare := make([]float64, width)
	var largest float64 // of all outputs, also of those that are not wanted
	for i := range out {
		w := spare
		if from <= i && i < to {
			w = exact[(i-from)*width:][:width]
		}
		center := float64(scale * (float64(i) + 0.5))
		first := max(int(center-support+0.5), 0)
		count := min(max(min(int(center+support+0.5), in)-first, 0), width)
		var sum float64
		for j := range count {
			w[j] = cubic((float64(j+first) - center + 0.5) * inverse)
			sum += w[j]
		}
		for j := range count {
			if sum != 0 {
				w[j] /= sum
			}
			largest = max(largest, w[j])
		}
		if from <= i && i < to {
			f.first[i-from], f.count[i-from] = first, count
		}
	}
	for f.shift < maxShift && int(0.5+largest*float64(int(2)<<f.shift)) < 1<<15 {
		f.shift++
	}
	one := float64(int(1) << f.shift)
	for i, w := range exact {
		f.weights[i] = int32(math.Trunc(w*one + math.Copysign(0.5, w)))
	}
	return f
}

// cubic is Keys' kernel with a = -1/2. The conversions, here and above, keep the
// compiler from fusing operations, so that every machine has the same weights.
func cubic(x float64) float64 {
	switch x = math.Abs(x); {
	case x < 1:
		return float64((float64(1.5*x)-2.5)*x*x) + 1
	case x < 2:
		return float64((float64((float64(-0.5*x)+2.5)*x)-4)*x) + 2
	}
	return 0
}

func clip(v int32) byte {
	if uint32(v) > 255 {
		return byte(^(v >> 31)) // 0 below, 255 above
	}
	return byte(v)
}

// row filters a line of pixels into another. The outputs start at from when
// there is no filter.
func (f *filter) row(dst, src []byte, from int) {
	if f == nil {
		copy(dst, src[channels*from:])
		return
	}
	half := int32(1) << f.shift >> 1
	for i, first := range f.first {
		s := src[channels*first:][:channels*f.count[i]]
		r, g, b := half, half, half
		for _, w := range f.weights[i*f.width:][:f.count[i]] {
			if len(s) < channels {
				break // never; it spares the checks of the indexes
			}
			r += w * int32(s[0])
			g += w * int32(s[1])
			b += w * int32(s[2])
			s = s[channels:]
		}
		d := dst[channels*i:][:channels]
		d[0], d[1], d[2] = clip(r>>f.shift), clip(g>>f.shift), clip(b>>f.shift)
	}
}

// add adds a line with its weight.
func add(sums []int32, line []byte, w int32) {
	for i, v := range line[:len(sums)] {
		sums[i] += w * int32(v)
	}
}

// add4 adds four lines, which takes half the time of one by one.
func add4(sums []int32, lines [4][]byte, w [4]int32) {
	n := len(sums)
	a, b, c, d := lines[0][:n], lines[1][:n], lines[2][:n], lines[3][:n]
	for i := range sums {
		sums[i] += w[0]*int32(a[i]) + w[1]*int32(b[i]) + w[2]*int32(c[i]) + w[3]*int32(d[i])
	}
}

// need returns the inputs of output i: count of them, from first on.
func (f *filter) need(i, from int) (first, count int) {
	if f == nil {
		return from + i, 1
	}
	return f.first[i], f.count[i]
}

// resizing is the part of an image that is wanted after it was resized.
type resizing struct {
	in, out image.Point
	part    image.Rectangle // of out
}

// lines holds the lines of pixels that a resizing works on.
type lines struct {
	in, ring, out []byte
	sums          []int32
}

var linePool = sync.Pool{New: func() any { return new(lines) }}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// run resizes, first across, then down, as torch does: with bytes in between.
// It hands over the lines of the wanted part from top to bottom; a line is gone
// with the next.
func (r resizing) run(ctx context.Context, src source, emit func(y int, line []byte)) error {
	across := newFilter(r.in.X, r.out.X, r.part.Min.X, r.part.Max.X)
	down := newFilter(r.in.Y, r.out.Y, r.part.Min.Y, r.part.Max.Y)
	keep := 1 // lines
	if down != nil {
		keep = down.width
	}
	width := channels * r.part.Dx()
	l := linePool.Get().(*lines)
	defer linePool.Put(l)
	l.in = grow(l.in, channels*r.in.X)
	l.ring = grow(l.ring, width*keep)
	l.out = grow(l.out, width)
	l.sums = grow(l.sums, width)
	kept := func(y int) []byte { return l.ring[y%keep*width:][:width] }

	next, _ := down.need(0, r.part.Min.Y)
	for y := range r.part.Dy() {
		if err := ctx.Err(); err != nil {
			return err
		}
		first, count := down.need(y, r.part.Min.Y)
		for ; next < first+count; next++ {
			across.row(kept(next), src.row(next, l.in), r.part.Min.X)
		}
		if down == nil {
			emit(y, kept(first))
			continue
		}
		half := int32(1) << down.shift >> 1
		for i := range l.sums {
			l.sums[i] = half
		}
		for j, w := 0, down.weights[y*down.width:][:count]; j < count; {
			if j+4 > count {
				add(l.sums, kept(first+j), w[j])
				j++
				continue
			}
			add4(l.sums, [4][]byte{kept(first + j), kept(first + j + 1), kept(first + j + 2), kept(first + j + 3)}, [4]int32(w[j:]))
			j += 4
		}
		for i, v := range l.sums {
			l.out[i] = clip(v >> down.shift)
		}
		emit(y, l.out)
	}
	return nil
}
