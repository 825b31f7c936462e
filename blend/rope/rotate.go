package rope

import (
	"encoding/binary"
	"math"

	"github.com/ringcache/ringcache/internal/shortfloat"
)

// A Rotation turns heads of keys.
type Rotation struct {
	dim      int
	pairing  Pairing
	none     bool
	cos, sin []float32 // by pair
	// The same as vector instructions want them. For GPTJ by element: the cosine of its pair, and the sine
	// with the sign that the other element has. For NeoX in blocks of 16 pairs: those with even numbers, and
	// then those with odd ones.
	first, second []float32
}

// Apply writes the rotated heads of src to dst. Both are whole heads of one type, and equally long; dst may
// be src, but must not overlap it in another way. Elements behind the rotated ones of each head are copied.
func (r Rotation) Apply(dst, src []byte, d DType) error {
	head := r.dim * d.Size()
	if head == 0 || len(src)%head != 0 || len(dst) != len(src) {
		return invalid("%d bytes to %d; they are whole heads of %d elements of %s", len(src), len(dst), r.dim, d)
	}
	if r.none {
		copy(dst, src)
		return nil
	}
	if rest := 2 * len(r.cos) * d.Size(); rest < head {
		for at := rest; at < len(src); at += head {
			copy(dst[at:at+head-rest], src[at:])
		}
	}
	if len(src) == 0 || r.applyVectors(dst, src, d) {
		return nil
	}
	for at := 0; at < len(src); at += head {
		r.head(dst[at:at+head], src[at:at+head], d)
	}
	return nil
}

func (r Rotation) head(dst, src []byte, d DType) {
	switch {
	case d == F32 && r.pairing == NeoX:
		r.neoxF32(dst, src)
	case d == F32:
		r.gptjF32(dst, src)
	case d == BF16 && r.pairing == NeoX:
		r.neoxBF16(dst, src)
	case d == BF16:
		r.gptjBF16(dst, src)
	case r.pairing == NeoX:
		r.neoxF16(dst, src)
	default:
		r.gptjF16(dst, src)
	}
}

// Floats is Apply for float32 numbers.
func (r Rotation) Floats(dst, src []float32) error {
	if r.dim == 0 || len(src)%r.dim != 0 || len(dst) != len(src) {
		return invalid("%d elements to %d; they are whole heads of %d", len(src), len(dst), r.dim)
	}
	n, step, next := len(r.cos), len(r.cos), 1
	if r.pairing == GPTJ {
		step, next = 1, 2
	}
	for at := 0; at < len(src); at += r.dim {
		to, from := dst[at:at+r.dim], src[at:at+r.dim]
		for i := range n {
			a, b := from[i*next], from[i*next+step]
			to[i*next], to[i*next+step] = turn(a, b, r.cos[i], r.sin[i])
		}
		copy(to[2*n:], from[2*n:])
	}
	return nil
}

// turn rounds each product: an architecture with fused operations would give other bits.
func turn(a, b, cos, sin float32) (float32, float32) {
	return float32(a*cos) - float32(b*sin), float32(b*cos) + float32(a*sin)
}

// The loops below are one for each form, for machines and numbers of pairs without vector instructions, which
// give the same bits, but for those of NaNs.

func (r Rotation) neoxF32(dst, src []byte) {
	cos, sin := r.cos, r.sin
	n := len(cos)
	sin = sin[:n]
	a, b := src[:4*n:4*n], src[4*n:8*n:8*n]
	da, db := dst[:4*n:4*n], dst[4*n:8*n:8*n]
	i := 0
	for ; i+2 <= n; i += 2 {
		x, y := binary.LittleEndian.Uint64(a[4*i:]), binary.LittleEndian.Uint64(b[4*i:])
		p, q := turn(low(x), low(y), cos[i], sin[i])
		s, t := turn(high(x), high(y), cos[i+1], sin[i+1])
		binary.LittleEndian.PutUint64(da[4*i:], join(p, s))
		binary.LittleEndian.PutUint64(db[4*i:], join(q, t))
	}
	for ; i < n; i++ {
		p, q := turn(single(a[4*i:]), single(b[4*i:]), cos[i], sin[i])
		binary.LittleEndian.PutUint32(da[4*i:], math.Float32bits(p))
		binary.LittleEndian.PutUint32(db[4*i:], math.Float32bits(q))
	}
}

func (r Rotation) gptjF32(dst, src []byte) {
	cos, sin := r.cos, r.sin
	sin = sin[:len(cos)]
	src, dst = src[:8*len(cos)], dst[:8*len(cos)]
	for i := range cos {
		x := binary.LittleEndian.Uint64(src[8*i:])
		p, q := turn(low(x), high(x), cos[i], sin[i])
		binary.LittleEndian.PutUint64(dst[8*i:], join(p, q))
	}
}

func (r Rotation) neoxBF16(dst, src []byte) {
	cos, sin := r.cos, r.sin
	n := len(cos)
	sin = sin[:n]
	a, b := src[:2*n:2*n], src[2*n:4*n:4*n]
	da, db := dst[:2*n:2*n], dst[2*n:4*n:4*n]
	i := 0
	for ; i+4 <= n; i += 4 {
		x, y := binary.LittleEndian.Uint64(a[2*i:]), binary.LittleEndian.Uint64(b[2*i:])
		c, s := cos[i:i+4:i+4], sin[i:i+4:i+4]
		p0, q0 := turn(bf(x<<16), bf(y<<16), c[0], s[0])
		p1, q1 := turn(bf(x), bf(y), c[1], s[1])
		p2, q2 := turn(bf(x>>16), bf(y>>16), c[2], s[2])
		p3, q3 := turn(bf(x>>32), bf(y>>32), c[3], s[3])
		binary.LittleEndian.PutUint64(da[2*i:], joinBF(p0, p1, p2, p3))
		binary.LittleEndian.PutUint64(db[2*i:], joinBF(q0, q1, q2, q3))
	}
	for ; i < n; i++ {
		x, y := binary.LittleEndian.Uint16(a[2*i:]), binary.LittleEndian.Uint16(b[2*i:])
		p, q := turn(bf(uint64(x)<<16), bf(uint64(y)<<16), cos[i], sin[i])
		binary.LittleEndian.PutUint16(da[2*i:], uint16(roundBF(p)))
		binary.LittleEndian.PutUint16(db[2*i:], uint16(roundBF(q)))
	}
}

func (r Rotation) gptjBF16(dst, src []byte) {
	cos, sin := r.cos, r.sin
	sin = sin[:len(cos)]
	src, dst = src[:4*len(cos)], dst[:4*len(cos)]
	for i := range cos {
		x := uint64(binary.LittleEndian.Uint32(src[4*i:]))
		p, q := turn(bf(x<<16), bf(x), cos[i], sin[i])
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(roundBF(p)|roundBF(q)<<16))
	}
}

func (r Rotation) neoxF16(dst, src []byte) {
	cos, sin := r.cos, r.sin
	n := len(cos)
	sin = sin[:n]
	a, b := src[:2*n:2*n], src[2*n:4*n:4*n]
	da, db := dst[:2*n:2*n], dst[2*n:4*n:4*n]
	for i := range cos {
		x, y := binary.LittleEndian.Uint16(a[2*i:]), binary.LittleEndian.Uint16(b[2*i:])
		p, q := turn(shortfloat.FromF16(x), shortfloat.FromF16(y), cos[i], sin[i])
		binary.LittleEndian.PutUint16(da[2*i:], shortfloat.ToF16(p))
		binary.LittleEndian.PutUint16(db[2*i:], shortfloat.ToF16(q))
	}
}

func (r Rotation) gptjF16(dst, src []byte) {
	cos, sin := r.cos, r.sin
	sin = sin[:len(cos)]
	src, dst = src[:4*len(cos)], dst[:4*len(cos)]
	for i := range cos {
		x := binary.LittleEndian.Uint32(src[4*i:])
		p, q := turn(shortfloat.FromF16(uint16(x)), shortfloat.FromF16(uint16(x>>16)), cos[i], sin[i])
		binary.LittleEndian.PutUint32(dst[4*i:], uint32(shortfloat.ToF16(p))|uint32(shortfloat.ToF16(q))<<16)
	}
}

func low(x uint64) float32    { return math.Float32frombits(uint32(x)) }
func high(x uint64) float32   { return math.Float32frombits(uint32(x >> 32)) }
func single(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func join(a, b float32) uint64 {
	return uint64(math.Float32bits(a)) | uint64(math.Float32bits(b))<<32
}

// bf returns the bfloat16 in the bits 16 to 31.
func bf(x uint64) float32 { return math.Float32frombits(uint32(x) & 0xffff0000) }

// roundBF is shortfloat.ToBF16 for sums of products of bfloat16 numbers with finite ones. A NaN among the
// factors stays one in the upper bits, and infinity times zero is a quiet NaN, so that rounding carries into
// no exponent.
func roundBF(x float32) uint64 {
	b := math.Float32bits(x)
	return uint64((b + 0x7fff + b>>16&1) >> 16)
}

func joinBF(a, b, c, d float32) uint64 {
	return roundBF(a) | roundBF(b)<<16 | roundBF(c)<<32 | roundBF(d)<<48
}
