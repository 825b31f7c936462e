package preprocess

import (
	"encoding/binary"
	"math"
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

// pair holds a pixel of two lines: in each number that of the one in the low half, and
// that of the other in the high half. Sums of their products with weights are those of
// both, since each is in 32 bits: the weights of an output add up to 1<<22 at most, and
// without their signs to half as much again. It halves the multiplications, which are
// the limit.
type pair [channels]int64

// halves returns the two sums that a number holds.
func halves(sum int64) (low, high int32) {
	return int32(sum), int32((sum + 1<<31) >> 32)
}

// both returns v in both halves.
func both(v int32) int64 { return int64(v)<<32 + int64(v) }

// rows filters two lines of pixels into two others. The outputs start at from when
// there is no filter. spare has room for a line.
func (f *filter) rows(dst, src [2][]byte, from int, spare []pair) {
	if f == nil {
		copy(dst[0], src[0][channels*from:])
		copy(dst[1], src[1][channels*from:])
		return
	}
	n := len(f.first)
	begin, end := f.first[0], f.first[n-1]+f.count[n-1]
	a, b := src[0][channels*begin:channels*end], src[1][channels*begin:channels*end]
	in := spare[:end-begin]
	for i := range in {
		a, b := a[channels*i:][:channels], b[channels*i:][:channels]
		in[i] = pair{int64(a[0]) | int64(b[0])<<32, int64(a[1]) | int64(b[1])<<32, int64(a[2]) | int64(b[2])<<32}
	}
	half := both(int32(1) << f.shift >> 1)
	for i, first := range f.first {
		pixels := in[first-begin:][:f.count[i]]
		weights := f.weights[i*f.width:][:len(pixels)]
		red, green, blue := half, half, half
		for j := range pixels {
			w, p := int64(weights[j]), &pixels[j]
			red += w * p[0]
			green += w * p[1]
			blue += w * p[2]
		}
		d, e := dst[0][channels*i:][:channels], dst[1][channels*i:][:channels]
		low, high := halves(red)
		d[0], e[0] = clip(low>>f.shift), clip(high>>f.shift)
		low, high = halves(green)
		d[1], e[1] = clip(low>>f.shift), clip(high>>f.shift)
		low, high = halves(blue)
		d[2], e[2] = clip(low>>f.shift), clip(high>>f.shift)
	}
}

// group is how many samples are summed up together. Lines that are summed up have
// whole groups.
const group = 8

func groups(n int) int { return (n + group - 1) / group * group }

// sum writes the sums of lines with the weights of output i.
func (f *filter) sum(dst []byte, lines [][]byte, i int) {
	weights := f.weights[i*f.width:][:len(lines)]
	half := both(int32(1) << f.shift >> 1)
	const two = 0xff<<32 | 0xff // of eight samples
	for at := 0; at < len(dst); at += group {
		a, b, c, d := half, half, half, half
		for j, line := range lines {
			v, w := binary.LittleEndian.Uint64(line[at:]), int64(weights[j])
			a += w * int64(v&two)
			b += w * int64(v>>8&two)
			c += w * int64(v>>16&two)
			d += w * int64(v>>24&two)
		}
		out := dst[at:][:group]
		low, high := halves(a)
		out[0], out[4] = clip(low>>f.shift), clip(high>>f.shift)
		low, high = halves(b)
		out[1], out[5] = clip(low>>f.shift), clip(high>>f.shift)
		low, high = halves(c)
		out[2], out[6] = clip(low>>f.shift), clip(high>>f.shift)
		low, high = halves(d)
		out[3], out[7] = clip(low>>f.shift), clip(high>>f.shift)
	}
}

// need returns the inputs of output i: count of them, from first on.
func (f *filter) need(i, from int) (first, count int) {
	if f == nil {
		return from + i, 1
	}
	return f.first[i], f.count[i]
}
