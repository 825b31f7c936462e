package safetensors

import (
	"math"
	"math/bits"
	"strconv"
)

// unsigned reads an integer without a sign, as a dimension is.
func (r *reader) unsigned() (uint64, error) {
	var n uint64
	err := r.number(&n)
	return n, err
}

// number reads a number. If integer is not nil, the number must be an integer from 0 to 2^64-1, without
// a sign, point or exponent. Otherwise the number must only be one that the library reads: those beyond a float64
// are none.
func (r *reader) number(integer *uint64) error {
	r.peek()
	start := r.i
	r.take('-')
	var f float
	switch {
	case r.take('0'): // a digit behind it is refused, as everything is that is no comma and no end
	case r.digits(f.digit) == 0:
		return r.fail("expected a value")
	}
	if r.take('.') {
		f.fraction = true
		if r.digits(f.digit) == 0 {
			return r.fail("a point without digits behind it")
		}
	}
	if r.take('e') || r.take('E') {
		down := !r.take('+') && r.take('-')
		at := r.i
		if r.digits(func(byte) {}) == 0 {
			return r.fail("an exponent without digits")
		}
		if !f.scale(r.text[at:r.i], down) {
			return r.fail("a number that is too large")
		}
	}
	if integer != nil {
		n, err := strconv.ParseUint(r.text[start:r.i], 10, 64)
		if err != nil {
			return r.fail("%.40s is no integer from 0 to 2^64-1", r.text[start:r.i])
		}
		*integer = n
		return nil
	}
	if !f.finite() {
		return r.fail("a number that is too large")
	}
	return nil
}

func (r *reader) take(c byte) bool {
	if r.i == len(r.text) || r.text[r.i] != c {
		return false
	}
	r.i++
	return true
}

// digits reads digits and returns how many there were.
func (r *reader) digits(each func(byte)) int {
	start := r.i
	for ; r.i < len(r.text) && r.text[r.i] >= '0' && r.text[r.i] <= '9'; r.i++ {
		each(r.text[r.i] - '0')
	}
	return r.i - start
}

// A float decides whether the library's parser, which does not round correctly, sees a number
// as infinite. It keeps as many digits as fit 64 bits, and a power of ten.
type float struct {
	significand uint64
	exponent    int64
	fraction    bool // digits are those behind the point
	full        bool // more digits do not fit
}

func (f *float) digit(d byte) {
	if !f.full {
		hi, lo := bits.Mul64(f.significand, 10)
		sum, carry := bits.Add64(lo, uint64(d), 0)
		if hi == 0 && carry == 0 {
			f.significand = sum
			if f.fraction {
				f.exponent--
			}
			return
		}
		f.full = true
	}
	if !f.fraction {
		f.exponent++
	}
}

// scale adds an exponent. It reports false for a number that is too large for certain.
func (f *float) scale(digits string, down bool) bool {
	n, err := strconv.ParseInt(digits, 10, 32)
	switch {
	case err == nil && down:
		f.exponent = max(f.exponent-n, math.MinInt32)
	case err == nil:
		f.exponent = min(f.exponent+n, math.MaxInt32)
	case down:
		f.significand = 0
	default:
		return f.significand == 0
	}
	return true
}

// finite multiplies as the library does, in its order.
func (f *float) finite() bool {
	v, e := float64(f.significand), f.exponent
	for e < -308 && v != 0 {
		v /= 1e308
		e += 308
	}
	switch {
	case v == 0 || e < 0:
		return true
	case e > 308:
		return false
	}
	power, _ := strconv.ParseFloat("1e"+strconv.FormatInt(e, 10), 64) // math.Pow10 is not exact
	return !math.IsInf(v*power, 0)
}
