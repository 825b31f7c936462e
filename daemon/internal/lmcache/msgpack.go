package lmcache

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// decoder reads msgpack. After the first error it reads nothing.
type decoder struct {
	rest []byte
	kind error // what its errors are
	err  error
}

func (d *decoder) fail(text string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %w", d.kind, fmt.Sprintf(text, args...), fs.ErrInvalid)
	}
}

// fields reads a map of n fields, in any order, each of which once.
func (d *decoder) fields(n uint32, field func(name string)) {
	have, rest, err := msgp.ReadMapHeaderBytes(d.rest)
	if err != nil || have != n {
		d.fail("a map of %d fields, not %d (%v)", have, n, err)
	}
	d.rest = rest
	var seen []string
	for range n {
		name := d.text()
		if slices.Contains(seen, name) {
			d.fail("a field %.40q twice", name)
		}
		seen = append(seen, name)
		if d.err != nil {
			return
		}
		field(name)
	}
}

// open reads a map of any fields. field reports whether it has read one; others are skipped.
func (d *decoder) open(field func(name string) bool) {
	if d.err != nil {
		return
	}
	n, rest, err := msgp.ReadMapHeaderBytes(d.rest)
	if err != nil {
		d.fail("%v", err)
		return
	}
	d.rest = rest
	for range n {
		if name := d.text(); !field(name) {
			d.raw()
		}
		if d.err != nil {
			return
		}
	}
}

// array reads the header of an array, and returns how many elements follow: not more than most.
func (d *decoder) array(most int) int {
	if d.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(d.rest)
	if err != nil || int64(n) > int64(most) {
		d.fail("an array of %d elements, and %d are the most (%v)", n, most, err)
		return 0
	}
	d.rest = rest
	return int(n)
}

// list reads an array of at most so many elements, one by one.
func (d *decoder) list(most int, element func(d *decoder)) {
	for range d.array(most) {
		element(d)
		if d.err != nil {
			return
		}
	}
}

// integers reads an array of at most so many numbers.
func (d *decoder) integers(most int) (out []int64) {
	d.list(most, func(d *decoder) { out = append(out, int64(d.integer())) })
	return out
}

func (d *decoder) integer() int {
	if d.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadInt64Bytes(d.rest)
	if err != nil {
		d.fail("%v", err)
	}
	d.rest = rest
	return int(n)
}

// optional reads a number that may be nil.
func (d *decoder) optional() *int64 {
	if d.null() {
		return nil
	}
	n := int64(d.integer())
	return &n
}

// null reads a nil, if there is one.
func (d *decoder) null() bool {
	if d.err != nil || !msgp.IsNil(d.rest) {
		return false
	}
	d.rest = d.rest[1:]
	return true
}

// number reads a number of any kind.
func (d *decoder) number() float64 {
	if t := msgp.NextType(d.rest); t == msgp.IntType || t == msgp.UintType {
		return float64(d.integer())
	}
	if d.err != nil {
		return 0
	}
	n, rest, err := msgp.ReadFloat64Bytes(d.rest)
	if err != nil {
		d.fail("%v", err)
	}
	d.rest = rest
	return n
}

func (d *decoder) truth() bool {
	if d.err != nil {
		return false
	}
	v, rest, err := msgp.ReadBoolBytes(d.rest)
	if err != nil {
		d.fail("%v", err)
	}
	d.rest = rest
	return v
}

// bytes reads bytes, which are a part of what the decoder has.
func (d *decoder) bytes() []byte {
	if d.err != nil {
		return nil
	}
	if msgp.NextType(d.rest) != msgp.BinType {
		d.fail("data that are no bytes")
		return nil
	}
	b, rest, err := msgp.ReadBytesZC(d.rest)
	if err != nil {
		d.fail("%v", err)
	}
	d.rest = rest
	return b
}

// raw reads a value of any kind, as it is.
func (d *decoder) raw() []byte {
	if d.err != nil {
		return nil
	}
	rest, err := msgp.Skip(d.rest)
	if err != nil {
		d.fail("%v", err)
		return nil
	}
	b := d.rest[:len(d.rest)-len(rest)]
	d.rest = rest
	return b
}

func (d *decoder) text() string {
	if d.err != nil {
		return ""
	}
	s, rest, err := msgp.ReadStringZC(d.rest)
	if err != nil {
		d.fail("%v", err)
	}
	d.rest = rest
	return string(s)
}
