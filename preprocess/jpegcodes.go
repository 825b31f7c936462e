package preprocess

import "errors"

var errBadCode = errors.New("a bad Huffman code")

// code is a Huffman code.
type code struct {
	short   [1 << shortBits]uint16 // length<<8 | value of what begins so; 0: it is longer
	limit   [17]int32              // of each length: its codes are below
	offset  [17]int32              // of a length's codes to their values
	symbols []byte
	dc      bool
	fast    *[1 << fastBits]step // made when a sequential scan needs it
}

const (
	shortBits = 9
	fastBits  = 11
)

// step is what a symbol of a sequential scan is to the decoder, and the value behind
// it, where both are in fastBits: from the lowest bit on, 5 bits of how many to drop,
// 4 of how many the value has that is still to be read, 7 of how far to go in the block
// (endOfBlock: to its end), and the value, signed. It is 0 if there is none.
type step int32

const endOfBlock = 64

// step returns that of length<<8 | symbol, without its value.
func (c *code) step(entry int) step {
	length, zeros, n := entry>>8, entry>>4&15, entry&15
	switch {
	case entry == 0 || c.dc && zeros > 0:
		return 0
	case n == 0 && zeros != 15:
		zeros = endOfBlock - 1
	}
	return step(length | n<<5 | (zeros+1)<<9)
}

// makeFast makes the table of steps, unless it is there, in the memory of codes with
// the same number.
func (c *code) makeFast(steps *[1 << fastBits]step) {
	if c.fast != nil {
		return
	}
	c.fast = steps
	for i := range c.fast {
		bits := uint64(i) << (64 - fastBits)
		e := c.step(c.entry(bits))
		length, n := int(e&31), int(e>>5&15)
		switch {
		case length > fastBits:
			e = 0 // the rest of the bits decides
		case n > 0 && length+n <= fastBits:
			e = step(length+n) | e&(127<<9) | step(signed(int32(bits<<length>>(64-n)), n))<<16
		}
		c.fast[i] = e
	}
}

// signed returns a value of n bits, of which those with a leading 0 are negative.
func signed(v int32, n int) int32 {
	if v < 1<<n>>1 {
		v += -1<<n + 1
	}
	return v
}

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
		t := &code{symbols: b[17 : 17+n], dc: class == 0}
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

// entry returns length<<8 | value of the code that bits begin with; 0 if they don't.
func (c *code) entry(bits uint64) int {
	if e := int(c.short[bits>>(64-shortBits)]); e != 0 {
		return e
	}
	return c.long(bits)
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
