package preprocess

import "errors"

var errBadCode = errors.New("a bad Huffman code")

// code is a Huffman code.
type code struct {
	short   [1 << shortBits]uint16 // length<<8 | value of what begins so; 0: it is longer
	limit   [17]int32              // of each length: its codes are below
	offset  [17]int32              // of a length's codes to their values
	symbols []byte
}

const shortBits = 9

func (j *jpegFile) huffmanTables(b []byte) error {
	for len(b) > 0 {
		if len(b) < 17 {
			return errShort
		}
		class, id := b[0]>>4, b[0]&15
		counts := b[1:17]
		n := 0
		for _, c := range counts {
			n += int(c)
		}
		if class > 1 || id > 3 || n > 256 || len(b) < 17+n {
			return errBadCode
		}
		t := &code{symbols: b[17 : 17+n]}
		next, at := int32(0), int32(0)
		for length := 1; length <= 16; length++ {
			t.offset[length] = at - next
			for range counts[length-1] {
				if next >= 1<<length {
					return errBadCode
				}
				if free := shortBits - length; free >= 0 {
					for i := range 1 << free {
						t.short[int(next)<<free+i] = uint16(length)<<8 | uint16(t.symbols[at])
					}
				}
				next++
				at++
			}
			t.limit[length] = next
			next <<= 1
		}
		j.codes[class][id] = t
		b = b[17+n:]
	}
	return nil
}

// long returns length<<8 | value of a code that is longer than shortBits; 0 if
// bits don't begin with one.
func (c *code) long(bits uint64) int {
	for length := shortBits + 1; length <= 16; length++ {
		if v := int32(bits >> (64 - length)); v < c.limit[length] {
			return length<<8 | int(c.symbols[v+c.offset[length]])
		}
	}
	return 0
}
