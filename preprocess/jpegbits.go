package preprocess

import (
	"encoding/binary"
)

// bitReader reads entropy-coded bits up to a marker, and zeros behind it.
type bitReader struct {
	rest []byte
	bits uint64 // the next ones, from the highest on
	n    int    // of bits; what is behind them is 0, or the beginning of rest
	past int    // of n, those that are not in the file
}

// fill makes sure that there are 32 bits.
func (r *bitReader) fill() {
	if len(r.rest) >= 8 {
		v := binary.BigEndian.Uint64(r.rest)
		if x := ^v; (x-0x0101010101010101)&^x&0x8080808080808080 == 0 { // none of the eight is 0xff
			// Bits of v that are not counted yet are the same when they come again.
			r.bits |= v >> r.n
			whole := (63 - r.n) >> 3
			r.n += 8 * whole
			r.rest = r.rest[whole:]
			return
		}
	}
	for r.n <= 56 {
		var b byte
		switch {
		case len(r.rest) == 0 || r.rest[0] == 0xff && (len(r.rest) < 2 || r.rest[1] != 0):
			r.past += 8
		case r.rest[0] == 0xff:
			b, r.rest = 0xff, r.rest[2:]
		default:
			b, r.rest = r.rest[0], r.rest[1:]
		}
		r.bits |= uint64(b) << (56 - r.n)
		r.n += 8
	}
}

// short reports whether more was read than there is.
func (r *bitReader) short() bool { return r.past > r.n }

func (r *bitReader) drop(n int) {
	r.bits <<= n
	r.n -= n
}

// take returns the next n bits, at most 16.
func (r *bitReader) take(n int) int32 {
	if r.n < n {
		r.fill()
	}
	v := int32(r.bits >> 1 >> (63 - n))
	r.drop(n)
	return v
}

// number returns a value of n bits, see signed.
func (r *bitReader) number(n int) int32 { return signed(r.take(n), n) }

// symbol returns the next symbol; -1 if it is none.
func (r *bitReader) symbol(c *code) int {
	if r.n < 32 {
		r.fill()
	}
	entry := c.entry(r.bits)
	if entry == 0 {
		return -1
	}
	r.drop(entry >> 8)
	return entry & 255
}
