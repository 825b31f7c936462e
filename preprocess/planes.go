package preprocess

// planes is a decoded JPEG. It brings the planes to full size and to RGB as
// libjpeg does (version 6b and libjpeg-turbo 3, with their default of fancy
// upsampling): where a plane has half the samples, neighbours are mixed 3 to 1;
// where it has fewer, samples are repeated.
type planes struct {
	*jpegFile
	full [channels][]byte // a line of each plane
	sums []int32
}

// fork returns the same image for another goroutine.
func (p *planes) fork() source { return newPlanes(p.jpegFile) }

func newPlanes(j *jpegFile) *planes {
	p := &planes{jpegFile: j}
	widest := 0
	for i, c := range j.comps {
		p.full[i] = make([]byte, c.width*(j.maxH/c.h))
		widest = max(widest, c.width)
	}
	p.sums = make([]int32, widest)
	return p
}

// line returns line y of a plane in full size.
func (p *planes) line(i, y int) []byte {
	c := &p.comps[i]
	stored := func(y int) []byte { return c.pix[min(max(y, 0), c.height-1)*c.stride():][:c.width] }
	h, v := p.maxH/c.h, p.maxV/c.v
	near, far := y/2, y/2-1+y%2*2
	dst := p.full[i]
	switch {
	case h == 1 && v == 1:
		return stored(y)
	case h == 2 && v == 1 && c.width > 2:
		widen(dst, stored(y))
	case h == 1 && v == 2:
		heighten(dst, stored(near), stored(far), y%2)
	case h == 2 && v == 2 && c.width > 2:
		enlarge(dst, stored(near), stored(far), p.sums[:c.width])
	default:
		for x, s := range stored(y / v) {
			for i := range h {
				dst[h*x+i] = s
			}
		}
	}
	return dst
}

// widen doubles the width.
func widen(dst, in []byte) {
	last := len(in) - 1
	for i, s := range in {
		left, right := s, s // at the edges there is nothing to mix with
		if i > 0 {
			left = byte((3*uint32(s) + uint32(in[i-1]) + 1) >> 2)
		}
		if i < last {
			right = byte((3*uint32(s) + uint32(in[i+1]) + 2) >> 2)
		}
		dst[2*i], dst[2*i+1] = left, right
	}
}

// heighten doubles the height: near is the line of the sample, far the next one.
func heighten(dst, near, far []byte, odd int) {
	round := uint32(1 + odd)
	for i, s := range near {
		dst[i] = byte((3*uint32(s) + uint32(far[i]) + round) >> 2)
	}
}

// enlarge doubles both.
func enlarge(dst, near, far []byte, sums []int32) {
	for i, s := range near {
		sums[i] = 3*int32(s) + int32(far[i])
	}
	last := len(sums) - 1
	for i, s := range sums {
		left, right := s, s
		if i > 0 {
			left = sums[i-1]
		}
		if i < last {
			right = sums[i+1]
		}
		dst[2*i], dst[2*i+1] = byte((3*s+left+8)>>4), byte((3*s+right+7)>>4)
	}
}

// What chroma adds, in whole steps to red and blue, in 1/65536 to green.
var redOf, blueOf, greenOfR, greenOfB = func() (red, blue, gr, gb [256]int32) {
	const half = 1 << 15
	fix := func(x float64) int32 { return int32(x*65536 + 0.5) }
	for i := range red {
		c := int32(i) - 128
		red[i] = (fix(1.402)*c + half) >> 16
		blue[i] = (fix(1.772)*c + half) >> 16
		gr[i] = -fix(0.71414) * c
		gb[i] = -fix(0.34414)*c + half
	}
	return red, blue, gr, gb
}()

func (p *planes) row(y int, buf []byte) []byte {
	dst := buf
	if len(p.comps) == 1 {
		for _, v := range p.line(0, y)[:p.size.X] {
			dst[0], dst[1], dst[2] = v, v, v
			dst = dst[channels:]
		}
		return buf
	}
	first, second, third := p.line(0, y)[:p.size.X], p.line(1, y)[:p.size.X], p.line(2, y)[:p.size.X]
	if p.rgb() {
		for x, r := range first {
			dst[0], dst[1], dst[2] = r, second[x], third[x]
			dst = dst[channels:]
		}
		return buf
	}
	second, third, dst = second[:len(first)], third[:len(first)], dst[:channels*len(first)]
	for x, v := range first {
		l, b, r := int32(v), second[x], third[x]
		d := dst[channels*x:][:channels:channels]
		d[0] = clip(l + redOf[r])
		d[1] = clip(l + (greenOfB[b]+greenOfR[r])>>16)
		d[2] = clip(l + blueOf[b])
	}
	return buf
}
