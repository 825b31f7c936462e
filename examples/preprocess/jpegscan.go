package preprocess

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	errBadCode = errors.New("a bad Huffman code")
	errBadScan = errors.New("a bad scan")
)

const (
	// maxScans bounds the work that a short progressive file can ask for.
	maxScans = 100
	// maxTables bounds the bytes of all tables: each short one is expanded.
	maxTables = 256 << 10
)

// bitReader reads entropy-coded bits up to a marker, and zeros behind it.
type bitReader struct {
	rest []byte
	bits uint64 // the next ones, from the highest on
	n    int
	past int // of n, those that are not in the file
}

// fill makes sure that there are 32 bits.
func (r *bitReader) fill() {
	if r.n <= 32 && len(r.rest) >= 4 {
		v := binary.BigEndian.Uint32(r.rest)
		if x := ^v; (x-0x01010101)&^x&0x80808080 == 0 { // none of the four is 0xff
			r.bits |= uint64(v) << (32 - r.n)
			r.n += 32
			r.rest = r.rest[4:]
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

// number returns a value of n bits, of which those with a leading 0 are negative.
func (r *bitReader) number(n int) int32 {
	v := r.take(n)
	if n > 0 && v < 1<<(n-1) {
		v += -1<<n + 1
	}
	return v
}

// symbol returns the next symbol; -1 if it is none.
func (r *bitReader) symbol(c *code) int {
	if r.n < 32 {
		r.fill()
	}
	entry := int(c.short[r.bits>>(64-shortBits)])
	if entry == 0 {
		entry = c.long(r.bits)
	}
	if entry == 0 {
		return -1
	}
	r.drop(entry >> 8)
	return entry & 255
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

// scan reads one scan.
type scan struct {
	*jpegFile
	bitReader
	comps      []*component
	codes      [][2]*code
	last       [3]int32 // DC values
	begin, end int      // coefficients
	high, low  int      // bit positions, of progressive scans
	blocks     int32    // that end in zeros, still to come
}

// decode reads all scans, the first of which has this header.
func (j *jpegFile) decode(ctx context.Context, header []byte) error {
	for i := range j.comps {
		c := &j.comps[i]
		c.pix = make([]byte, c.stride()*8*c.down)
		if j.progressive {
			c.coefficients = make([][64]int16, c.across*c.down)
		}
	}
	for header != nil {
		s := &scan{jpegFile: j}
		if err := s.start(header); err != nil {
			return err
		}
		if err := s.read(ctx); err != nil {
			return err
		}
		j.rest = s.bitReader.rest
		var err error
		if header, err = j.segments(); err != nil {
			return err
		}
	}
	for i := range j.comps {
		c := &j.comps[i]
		if !c.seen {
			return fmt.Errorf("component %d is missing", c.id)
		}
		for at := range c.coefficients {
			if at%c.across == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			var b [64]int32
			for i, v := range c.coefficients[at] {
				b[i] = int32(v) * c.quant[i]
			}
			idct(&b, c.pix[c.place(at%c.across, at/c.across):], c.stride())
		}
		c.coefficients = nil
	}
	return nil
}

// place is where a block begins in the samples.
func (c *component) place(x, y int) int { return 8*y*c.stride() + 8*x }

func (s *scan) start(b []byte) error {
	if len(b) < 1 || b[0] < 1 || b[0] > 3 || len(b) < 4+2*int(b[0]) {
		return errBadScan
	}
	n := int(b[0])
	tail := b[1+2*n:]
	s.begin, s.end, s.high, s.low = int(tail[0]), int(tail[1]), int(tail[2]>>4), int(tail[2]&15)
	if !s.progressive {
		s.begin, s.end, s.high, s.low = 0, 63, 0, 0
	} else if s.begin > s.end || s.end > 63 || s.low > 13 || s.begin == 0 && s.end != 0 || s.begin > 0 && n > 1 {
		return errBadScan
	}
	for i := range n {
		id, tables := b[1+2*i], b[2+2*i]
		var c *component
		for k := range s.jpegFile.comps {
			if s.jpegFile.comps[k].id == id {
				c = &s.jpegFile.comps[k]
			}
		}
		if c == nil || tables>>4 > 3 || tables&15 > 3 {
			return errBadScan
		}
		for _, other := range s.comps {
			if other == c {
				return errBadScan
			}
		}
		// DC comes first, and only once; so does a sequential component.
		if c.seen && (!s.progressive || s.begin == 0 && s.high == 0) || !c.seen && s.begin+s.high > 0 {
			return errBadScan
		}
		codes := [2]*code{s.jpegFile.codes[0][tables>>4], s.jpegFile.codes[1][tables&15]}
		needDC, needAC := s.begin == 0 && s.high == 0, s.end > 0
		if needDC && codes[0] == nil || needAC && codes[1] == nil {
			return errBadScan
		}
		if c.quant == nil {
			if c.quant = s.quant[c.table]; c.quant == nil {
				return errors.New("a quantization table is missing")
			}
		}
		c.seen = true
		s.comps, s.codes = append(s.comps, c), append(s.codes, codes)
	}
	s.bitReader.rest = s.jpegFile.rest
	return nil
}

// read reads the blocks: one component's in rows, those of several by MCUs.
func (s *scan) read(ctx context.Context) error {
	size := s.mcus()
	alone := len(s.comps) == 1
	if c := s.comps[0]; alone {
		size.X, size.Y = (c.width+7)/8, (c.height+7)/8
	}
	interval, mark := 0, byte(0)
	for my := range size.Y {
		if err := ctx.Err(); err != nil {
			return err
		}
		for mx := range size.X {
			if s.restart > 0 && interval == s.restart {
				if err := s.resume(mark); err != nil {
					return err
				}
				interval, mark = 0, (mark+1)%8
			}
			interval++
			for i, c := range s.comps {
				h, v := c.h, c.v
				if alone {
					h, v = 1, 1
				}
				for y := range v {
					for x := range h {
						if err := s.block(i, c, mx*h+x, my*v+y); err != nil {
							return err
						}
					}
				}
			}
		}
		if s.short() {
			return errShort
		}
	}
	return nil
}

// resume begins anew behind a restart marker.
func (s *scan) resume(mark byte) error {
	if s.short() {
		return errShort
	}
	b := s.bitReader.rest
	for len(b) > 1 && b[0] == 0xff && b[1] == 0xff {
		b = b[1:]
	}
	if len(b) < 2 || b[0] != 0xff || b[1] != mRST0+mark {
		return errors.New("a restart marker is missing")
	}
	s.bitReader = bitReader{rest: b[2:]}
	s.last, s.blocks = [3]int32{}, 0
	return nil
}

// block reads one block of component c, the i-th of the scan.
func (s *scan) block(i int, c *component, x, y int) error {
	codes := s.codes[i]
	if !s.progressive {
		var b [64]int32
		if err := s.sequential(&b, &s.last[i], codes, c.quant); err != nil {
			return err
		}
		idct(&b, c.pix[c.place(x, y):], c.stride())
		return nil
	}
	b := &c.coefficients[y*c.across+x]
	switch {
	case s.begin == 0 && s.high == 0:
		if err := s.dc(&s.last[i], codes[0]); err != nil {
			return err
		}
		b[0] = int16(s.last[i] << s.low)
	case s.begin == 0:
		b[0] |= int16(s.take(1) << s.low)
	case s.high == 0:
		return s.ac(b, codes[1])
	default:
		return s.refine(b, codes[1])
	}
	return nil
}

// dc moves a DC value on.
func (s *scan) dc(last *int32, c *code) error {
	n := s.symbol(c)
	if n < 0 || n > 15 {
		return errBadCode
	}
	*last += s.number(n)
	return nil
}

func (s *scan) sequential(b *[64]int32, last *int32, codes [2]*code, quant *[64]int32) error {
	if err := s.dc(last, codes[0]); err != nil {
		return err
	}
	b[0] = int32(int16(*last)) * quant[0]
	c := codes[1]
	bits, have := s.bits, s.n // in registers: this is most of the work
	for k := 1; k < 64; k++ {
		if have < 32 { // enough for a symbol and a number
			s.bits, s.n = bits, have
			s.fill()
			bits, have = s.bits, s.n
		}
		entry := int(c.short[bits>>(64-shortBits)])
		if entry == 0 {
			if entry = c.long(bits); entry == 0 {
				return errBadCode
			}
		}
		bits <<= entry >> 8
		have -= entry >> 8
		zeros, n := entry>>4&15, entry&15
		if n == 0 {
			if zeros != 15 {
				break
			}
			k += 15
			continue
		}
		if k += zeros; k > 63 {
			return errBadCode
		}
		v := int32(bits >> (64 - n))
		bits <<= n
		have -= n
		if v < 1<<(n-1) {
			v += -1<<n + 1
		}
		at := zigzag[k] & 63
		b[at] = v * quant[at]
	}
	s.bits, s.n = bits, have
	return nil
}

// ac reads the first bits of coefficients.
func (s *scan) ac(b *[64]int16, c *code) error {
	if s.blocks > 0 {
		s.blocks--
		return nil
	}
	for k := s.begin; k <= s.end; k++ {
		symbol := s.symbol(c)
		if symbol < 0 {
			return errBadCode
		}
		zeros, n := symbol>>4, symbol&15
		if n == 0 {
			if zeros != 15 {
				s.blocks = 1<<zeros + s.take(zeros) - 1
				break
			}
			k += 15
			continue
		}
		if k += zeros; k > s.end {
			return errBadCode
		}
		b[zigzag[k]] = int16(s.number(n) << s.low)
	}
	return nil
}

// refine reads one more bit of coefficients.
func (s *scan) refine(b *[64]int16, c *code) error {
	bit := int16(1) << s.low
	// pass goes on from k over coefficients that are known, each of which has a
	// bit, and over some that are 0, and returns the place of the 0 after those.
	pass := func(k, zeros int) int {
		for ; k <= s.end; k++ {
			v := &b[zigzag[k]]
			if *v == 0 {
				if zeros == 0 {
					break
				}
				zeros--
			} else if s.take(1) == 1 && *v&bit == 0 {
				if *v > 0 {
					*v += bit
				} else {
					*v -= bit
				}
			}
		}
		return k
	}
	k := s.begin
	for ; s.blocks == 0 && k <= s.end; k++ {
		symbol := s.symbol(c)
		if symbol < 0 {
			return errBadCode
		}
		zeros, n := symbol>>4, symbol&15
		var v int16
		switch {
		case n > 1:
			return errBadCode
		case n == 1:
			v = -bit
			if s.take(1) == 1 {
				v = bit
			}
		case zeros != 15:
			s.blocks = 1<<zeros + s.take(zeros)
		}
		if s.blocks > 0 {
			break
		}
		if k = pass(k, zeros); k > s.end {
			if n == 1 {
				return errBadCode
			}
			break
		}
		if n == 1 {
			b[zigzag[k]] = v
		}
	}
	if s.blocks > 0 {
		pass(k, 64)
		s.blocks--
	}
	return nil
}
