// Package shortfloat converts floats of 16 bits: IEEE 754 halves (float16) and the upper halves of float32
// (bfloat16). Conversions from float32 round to the nearest, ties to even.
package shortfloat

import "math"

// ToBF16 keeps NaN: what a bfloat16 cuts off may be all that makes a NaN differ from infinity.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBF16 is exact: a bfloat16 is the upper half of a float32.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToF16 keeps NaN, and makes infinity of what is too large.
func ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	if b-0x38800000 < 0x477ff000-0x38800000 { // normal, and rounds to no infinity
		return sign | uint16((b-0x38000000+0xfff+b>>13&1)>>13)
	}
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000:
		return sign | 0x7c00
	}
	// The sum with 0.5 rounds to multiples of 2^-24, the least number of a float16.
	return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
}

// FromF16 is exact. It moves the bits to their places in a float32 and corrects the exponent by a product,
// also for numbers below the normal ones.
func FromF16(h uint16) float32 {
	b := uint32(h&0x7fff) << 13
	if b >= 0x0f800000 { // infinity and NaN
		return math.Float32frombits(uint32(h&0x8000)<<16 | b | 0x7f800000)
	}
	x := math.Float32frombits(b) * 0x1p112
	return math.Float32frombits(math.Float32bits(x) | uint32(h&0x8000)<<16)
}
