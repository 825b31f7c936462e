package rope

import (
	"encoding/binary"
	"math"

	"github.com/ringcache/ringcache/internal/shortfloat"
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
			dst[i] = shortfloat.FromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		src = src[:2*len(dst)]
		for i := range dst {
			dst[i] = shortfloat.FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
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
			binary.LittleEndian.PutUint16(dst[2*i:], shortfloat.ToF16(x))
		}
	case BF16:
		dst = dst[:2*len(src)]
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], shortfloat.ToBF16(x))
		}
	default:
		panic("rope: no such dtype")
	}
}
