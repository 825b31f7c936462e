package preprocess

import (
	"context"
	"errors"
)

var errBadScan = errors.New("a bad scan")

// scan reads one scan.
type scan struct {
	*jpegFile
	*buffers
	bitReader
	comps      []*component
	codes      [][2]*code
	last       [3]int32 // DC values
	begin, end int      // coefficients
	high, low  int      // bit positions, of progressive scans
	blocks     int32    // that end in zeros, still to come
}

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
		if !s.progressive {
			codes[0].makeFast(&s.steps[0][tables>>4])
			codes[1].makeFast(&s.steps[1][tables&15])
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

var errNoRestart = errors.New("a restart marker is missing")

// resume begins anew behind a restart marker.
func (s *scan) resume(mark byte) error {
	if s.short() {
		return errShort
	}
	if s.n-s.past >= 8 { // whole bytes that no block has read
		return errNoRestart
	}
	b := s.bitReader.rest
	for len(b) > 1 && b[0] == 0xff && b[1] == 0xff {
		b = b[1:]
	}
	if len(b) < 2 || b[0] != 0xff || b[1] != mRST0+mark {
		return errNoRestart
	}
	s.bitReader = bitReader{rest: b[2:]}
	s.last, s.blocks = [3]int32{}, 0
	return nil
}
