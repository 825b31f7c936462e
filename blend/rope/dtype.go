package rope

import (
	"encoding/binary"
	"math"
)

// DType is the type of the elements of keys and values.
type DType int

// Types, little-endian.
const (
	F32 DType = iota
	F16
	BF16
)

// String returns torch's name.
func (d DType) String() string {
	switch d {
	case F32:
		return "float32"
	case F16:
		return "float16"
	case BF16:
		return "bfloat16"
	}
	return "unknown"
}

// MarshalText returns torch's name.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets d to the type with torch's name.
func (d *DType) UnmarshalText(name []byte) error {
	for _, one := range []DType{F32, F16, BF16} {
		if one.String() == string(name) {
			*d = one
			return nil
		}
	}
	return invalid("keys of dtype %q; float32, float16 and bfloat16 are possible", name)
}

// Size returns the bytes of an element, 0 for what is no type.
func (d DType) Size() int {
	switch d {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 0
}

// Decode converts len(dst) elements of src. It panics if src has fewer.
func (d DType) Decode(dst []float32, src []byte) {
	switch d {
	case F32:
		src = src[:4*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		src = src[:2*len(dst)]
		for i := range dst {
			dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		src = src[:2*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	default:
		panic("rope: no such dtype")
	}
}

// Encode converts all elements of src, rounded to nearest even. It panics if dst has no room for them.
func (d DType) Encode(dst []byte, src []float32) {
	switch d {
	case F32:
		dst = dst[:4*len(src)]
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	case F16:
		dst = dst[:2*len(src)]
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], toF16(x))
		}
	case BF16:
		dst = dst[:2*len(src)]
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], toBF16(x))
		}
	default:
		panic("rope: no such dtype")
	}
}

// toBF16 keeps NaN: what a bfloat16 cuts off may be all that makes a NaN differ from infinity.
func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// fromF16 moves the bits to their places in a float32 and corrects the exponent by a product, which is exact,
// also for numbers below the normal ones.
func fromF16(h uint16) float32 {
	b := uint32(h&0x7fff) << 13
	if b >= 0x0f800000 { // infinity and NaN
		return math.Float32frombits(uint32(h&0x8000)<<16 | b | 0x7f800000)
	}
	x := math.Float32frombits(b) * 0x1p112
	return math.Float32frombits(math.Float32bits(x) | uint32(h&0x8000)<<16)
}

func toF16(x float32) uint16 {
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
