package codec

import (
	"fmt"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// Integer reads an integer: an int64, or a uint64 where an int64 can't hold it.
func (d *Decoder) Integer(what string) (any, error) {
	n, big, err := d.integer(what)
	switch {
	case err != nil:
		return nil, err
	case big != 0:
		return big, nil
	}
	return n, nil
}

// codeUint64 begins an integer of 64 bits without a sign.
const codeUint64 = 0xcf

// integer reads an integer. big is not 0 where an int64 can't hold it, and n is 0
// then.
func (d *Decoder) integer(what string) (n int64, big uint64, err error) {
	if err := d.Expect(KindInt, what); err != nil {
		return 0, 0, err
	}
	var rest []byte
	if d.doc[d.pos] == codeUint64 {
		big, rest, err = msgp.ReadUint64Bytes(d.rest())
		if big <= math.MaxInt64 {
			n, big = int64(big), 0
		}
	} else {
		n, rest, err = msgp.ReadInt64Bytes(d.rest())
	}
	if err != nil {
		return 0, 0, d.broken(what, err)
	}
	d.went(rest)
	return n, big, nil
}

// Int64 reads an integer that an int64 can hold.
func (d *Decoder) Int64(what string) (int64, error) {
	n, big, err := d.integer(what)
	if err == nil && big != 0 {
		err = d.Corrupt(what, "a signed 64-bit integer", fmt.Sprint(big))
	}
	return n, err
}

// Uint64 reads an integer of 0 or more.
func (d *Decoder) Uint64(what string) (uint64, error) {
	n, big, err := d.integer(what)
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, d.Corrupt(what, "0 or more", fmt.Sprint(n))
	case big != 0:
		return big, nil
	}
	return uint64(n), nil
}

// Uint32 reads an integer of 32 bits without a sign.
func (d *Decoder) Uint32(what string) (uint32, error) {
	n, err := d.Int64(what)
	if err != nil {
		return 0, err
	}
	if n < 0 || n > 1<<32-1 {
		return 0, d.Corrupt(what, "an unsigned 32-bit integer", fmt.Sprint(n))
	}
	return uint32(n), nil
}

// Int reads an int of any sign.
func (d *Decoder) Int(what string) (int, error) {
	n, err := d.Int64(what)
	if err != nil {
		return 0, err
	}
	if int64(int(n)) != n {
		return 0, d.Corrupt(what, "an int", fmt.Sprint(n))
	}
	return int(n), nil
}

// IntFrom reads an int that is at least low.
func (d *Decoder) IntFrom(what string, low int) (int, error) {
	n, err := d.Int64(what)
	if err != nil {
		return 0, err
	}
	if int64(int(n)) != n || int(n) < low {
		return 0, d.Corrupt(what, fmt.Sprintf("at least %d", low), fmt.Sprint(n))
	}
	return int(n), nil
}

// Float reads a float, or an integer where Python takes one for a float.
func (d *Decoder) Float(what string) (float64, error) {
	if d.Peek() == KindInt {
		n, big, err := d.integer(what)
		if big != 0 {
			return float64(big), err
		}
		return float64(n), err
	}
	if err := d.Expect(KindFloat, what); err != nil {
		return 0, err
	}
	f, rest, err := msgp.ReadFloat64Bytes(d.rest())
	if err != nil {
		return 0, d.broken(what, err)
	}
	d.went(rest)
	return f, nil
}

// Bool reads a bool.
func (d *Decoder) Bool(what string) (bool, error) {
	if err := d.Expect(KindBool, what); err != nil {
		return false, err
	}
	b, rest, err := msgp.ReadBoolBytes(d.rest())
	if err != nil {
		return false, d.broken(what, err)
	}
	d.went(rest)
	return b, nil
}
