package mmhash

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// scalar writes the Python object that numpy's item makes of a 0-d array.
func (s *stream) scalar(d dtype, data []byte) {
	if !s.rules.Scalar0D {
		s.fail(ErrUnsupported, "vLLM before 0.16.0 fails on arrays and tensors without dimensions; give it the shape [1]")
		return
	}
	switch d.kind {
	case 'b':
		s.leafBool(data[0] != 0)
	case 'u':
		s.leafUint64(word(d, data))
	case 'i':
		unused := 64 - 8*d.size
		s.leafUint64(uint64(int64(word(d, data)<<unused) >> unused))
	case 'f':
		switch d.size {
		case 2:
			s.leafUint64(math.Float64bits(halfToFloat(uint16(word(d, data)))))
			return
		case 4:
			s.leafUint64(math.Float64bits(float64(math.Float32frombits(uint32(word(d, data))))))
			return
		case 8:
			s.leafUint64(word(d, data))
			return
		}
		s.noScalar(d)
	case 'S': // fills up with zeros, which item removes
		s.leafBytes(bytes.TrimRight(data, "\x00"))
	case 'U':
		text, ok := ucs4(d, data)
		if !ok {
			s.fail(errInvalid, "an array of text holds what is no character")
			return
		}
		s.leafText(text)
	default:
		s.noScalar(d)
	}
}

func (s *stream) noScalar(d dtype) {
	s.fail(ErrUnsupported, "vLLM hashes the pickle of the number in an array without dimensions of kind %q and %d bytes; "+
		"give it the shape [1]", d.kind, d.size)
}

// word reads an element of up to 8 bytes.
func word(d dtype, data []byte) uint64 {
	var b [8]byte
	copy(b[:], data)
	if d.big {
		slices.Reverse(b[:d.size])
	}
	return binary.LittleEndian.Uint64(b[:])
}

// ucs4 reads characters of 4 bytes, of which trailing zeros fill up.
func ucs4(d dtype, data []byte) (string, bool) {
	var text strings.Builder
	for at := 0; at < len(data); at += 4 {
		r := rune(word(dtype{size: 4, big: d.big}, data[at:at+4]))
		if !utf8.ValidRune(r) {
			return "", false
		}
		text.WriteRune(r)
	}
	return strings.TrimRight(text.String(), "\x00"), true
}

// halfToFloat widens an IEEE 754 half, as numpy does.
func halfToFloat(h uint16) float64 {
	sign, exp, frac := uint64(h>>15)<<63, int(h>>10&31), uint64(h&1023)
	switch exp {
	case 0: // zero or subnormal
		return math.Copysign(math.Ldexp(float64(frac), -24), math.Float64frombits(sign|1))
	case 31: // infinity or NaN, which keeps its bits
		return math.Float64frombits(sign | 0x7ff<<52 | frac<<42)
	}
	return math.Float64frombits(sign | uint64(exp-15+1023)<<52 | frac<<42)
}
