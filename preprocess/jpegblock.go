package preprocess

// zigzag is the place in a block of the coefficients as they are stored.
var zigzag = func() (z [64]uint8) {
	x, y, up := 0, 0, true
	for i := range z {
		z[i] = uint8(8*y + x)
		switch {
		case up && x == 7:
			y, up = y+1, false
		case up && y == 0:
			x, up = x+1, false
		case up:
			x, y = x+1, y-1
		case y == 7:
			x, up = x+1, true
		case x == 0:
			y, up = y+1, true
		default:
			x, y = x-1, y+1
		}
	}
	return z
}()

// block reads one block of component c, the i-th of the scan.
func (s *scan) block(i int, c *component, x, y int) error {
	codes := s.codes[i]
	if !s.progressive {
		var b [64]int32
		flat, err := s.sequential(&b, &s.last[i], codes, c.quant)
		if err != nil {
			return err
		}
		if at := c.place(x, y); flat {
			idctFlat(b[0], c.pix[at:], c.stride())
		} else {
			idct(&b, c.pix[at:], c.stride())
		}
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

// sequential reads a whole block, and reports whether it has nothing but its first
// coefficient.
func (s *scan) sequential(b *[64]int32, last *int32, codes [2]*code, quant *[64]int32) (flat bool, err error) {
	flat = true
	bits, have := s.bits, s.n // in registers: this is most of the work
	c := codes[0]
	for k := -1; k < 63; c = codes[1] {
		if have < 32 { // enough for a symbol and a number
			s.bits, s.n = bits, have
			s.fill()
			bits, have = s.bits, s.n
		}
		e := c.fast[bits>>(64-fastBits)]
		if e == 0 {
			if e = c.step(c.entry(bits)); e == 0 {
				return false, errBadCode
			}
		}
		bits <<= e & 31
		have -= int(e & 31)
		v := int32(e >> 16)
		if n := int(e >> 5 & 15); n > 0 {
			v = signed(int32(bits>>(64-n)), n)
			bits <<= n
			have -= n
		}
		if k < 0 {
			*last += v
			b[0] = int32(int16(*last)) * quant[0]
			k = 0
			continue
		}
		if k += int(e >> 9 & 127); k > 63 {
			if v != 0 {
				return false, errBadCode
			}
			break
		}
		flat = false
		at := zigzag[k&63] & 63
		b[at] = v * quant[at]
	}
	s.bits, s.n = bits, have
	return flat, nil
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
