package wire

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// maxDepth is the deepest nesting of a body. No message of this version has more than 4 levels, but a Hello of a later
// version shall be understood as far as it takes to answer it.
const maxDepth = 16

// maxPath is how many maps are inside of each other in a message: a reply, its state, one of the levels.
const maxPath = 3

// decoder reads one body that msgpackguard has checked. After the first problem it reads nothing more, and
// what it returns is zero: callers look at err at the end of each loop.
type decoder struct {
	what string // "request" or "reply"
	rest []byte
	err  *Error
	path [maxPath]step // where rest begins
	deep int
}

// step is a key of a map, with the number of an element if a list is under it.
type step struct {
	key   string
	index int // -1 where there is none
}

func (d *decoder) begin(what string, body []byte) {
	*d = decoder{what: what, rest: body}
	if err := msgpackguard.Check(body, msgpackguard.Limits{Depth: maxDepth}); err != nil {
		at := err.(*msgpackguard.Error) //nolint:errorlint // it has no other
		d.err = invalid("%s: byte %d of the body: %s", what, at.Offset, at.Problem)
	}
}

// end returns what was wrong.
func (d *decoder) end() error {
	if d.err == nil {
		return nil
	}
	return d.err
}

func (d *decoder) fail(format string, args ...any) {
	if d.err != nil {
		return
	}
	var b strings.Builder
	b.WriteString(d.what)
	for i, s := range d.path[:d.deep] {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(".")
		}
		b.WriteString(s.key)
		if s.index >= 0 {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		}
	}
	d.err = invalid("%s: %s", b.String(), fmt.Sprintf(format, args...))
}

// is reports whether the next value has one of the types.
func (d *decoder) is(want string, types ...msgp.Type) bool {
	if d.err != nil {
		return false
	}
	got := msgp.NextType(d.rest)
	for _, t := range types {
		if got == t {
			return true
		}
	}
	d.fail("want %s, got %s", want, typeName(got))
	return false
}

func typeName(t msgp.Type) string {
	switch t {
	case msgp.StrType:
		return "a text"
	case msgp.BinType:
		return "bytes"
	case msgp.MapType:
		return "a map"
	case msgp.ArrayType:
		return "a list"
	case msgp.IntType, msgp.UintType:
		return "an integer"
	case msgp.BoolType:
		return "a bool"
	case msgp.NilType:
		return "nil, which is left out instead"
	case msgp.Float32Type, msgp.Float64Type:
		return "a float"
	}
	return "an extension"
}

// took goes on behind a value that msgp has read.
func (d *decoder) took(rest []byte, err error) bool {
	if err != nil {
		d.fail("%v", err) // the guard has seen to it that this does not happen
		return false
	}
	d.rest = rest
	return true
}

// fields reads a map with the given keys, in any order, each at most once, and calls read for each. The map must have
// those that are needed.
func (d *decoder) fields(known keys, needed set, read func(n int)) set {
	var seen set
	if !d.is("a map", msgp.MapType) {
		return 0
	}
	n, rest, err := msgp.ReadMapHeaderBytes(d.rest)
	if !d.took(rest, err) {
		return 0
	}
	for range n {
		if !d.is("a text as a key", msgp.StrType) {
			return 0
		}
		key, rest, err := msgp.ReadStringZC(d.rest)
		if !d.took(rest, err) {
			return 0
		}
		k := known.find(key)
		switch {
		case k < 0:
			d.fail("unknown key %.64q", key)
			return 0
		case seen.has(k):
			d.fail("the key %q twice", known[k])
			return 0
		}
		seen |= 1 << k
		d.path[d.deep] = step{key: known[k], index: -1}
		d.deep++
		read(k)
		d.deep--
		if d.err != nil {
			return 0
		}
	}
	for k := range known {
		if needed.has(k) && !seen.has(k) {
			d.fail("the key %q is missing", known[k])
			return 0
		}
	}
	return seen
}

// list reads a list of at most so many elements, and calls read for each.
func (d *decoder) list(most int, read func(i int)) {
	if !d.is("a list", msgp.ArrayType) {
		return
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(d.rest)
	if !d.took(rest, err) {
		return
	}
	if uint64(n) > uint64(most) {
		d.fail("%d of them, the most in one message is %d", n, most)
		return
	}
	at := &d.path[d.deep-1].index
	for i := range int(n) {
		*at = i
		if read(i); d.err != nil {
			return
		}
	}
	*at = -1
}

// text reads a text into memory of its own, or returns the old one if it is the same.
func (d *decoder) text(old string) string {
	if !d.is("a text", msgp.StrType) {
		return ""
	}
	s, rest, err := msgp.ReadStringZC(d.rest)
	if !d.took(rest, err) {
		return ""
	}
	switch {
	case string(s) == old:
		return old
	case !utf8.Valid(s):
		d.fail("%.64q is not UTF-8", s)
		return ""
	}
	return string(s)
}

// textList reads a list of texts over an old one.
func (d *decoder) textList(old []string, most int) []string {
	old = old[:0]
	d.list(most, func(i int) {
		var before string
		if i < cap(old) {
			before = old[:i+1][i]
		}
		old = append(old, d.text(before))
	})
	return old
}

// wordOf reads one of the known words.
func wordOf[T ~string](d *decoder, known []T) T {
	if !d.is("a text", msgp.StrType) {
		return ""
	}
	s, rest, err := msgp.ReadStringZC(d.rest)
	if !d.took(rest, err) {
		return ""
	}
	w, ok := word(known, s)
	if !ok {
		d.fail("%.64q is unknown, want one of %q", s, known)
	}
	return w
}

// bytes reads bytes into memory of their own.
func (d *decoder) bytes() []byte {
	if !d.is("bytes", msgp.BinType) {
		return nil
	}
	b, rest, err := msgp.ReadBytesZC(d.rest)
	if !d.took(rest, err) || len(b) == 0 {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

func (d *decoder) bool() bool {
	if !d.is("a bool", msgp.BoolType) {
		return false
	}
	v, rest, err := msgp.ReadBoolBytes(d.rest)
	d.took(rest, err)
	return v
}

// uint64 reads an integer from 0.
func (d *decoder) uint64() uint64 {
	if !d.is("an integer", msgp.IntType, msgp.UintType) {
		return 0
	}
	n, rest, err := msgp.ReadUint64Bytes(d.rest)
	if below, ok := err.(msgp.UintBelowZero); ok { //nolint:errorlint // errors.As would allocate, and msgp wraps nothing here
		d.fail("%d, want 0 or more", below.Value)
		return 0
	}
	d.took(rest, err)
	return n
}

// int64 reads an integer from low, which is 0 or -1.
func (d *decoder) int64(low int64) int64 {
	if low < 0 && len(d.rest) > 0 && d.rest[0] >= 0x80 && d.is("an integer", msgp.IntType, msgp.UintType) {
		if n, rest, err := msgp.ReadInt64Bytes(d.rest); err == nil && n < 0 {
			d.took(rest, nil)
			if n < low {
				d.fail("%d, want %d or more", n, low)
			}
			return n
		}
	}
	n := d.uint64()
	if n > math.MaxInt64 {
		d.fail("%d, the most is %d", n, int64(math.MaxInt64))
		return 0
	}
	return int64(n)
}

// int reads an integer from 0 that is an int on every system.
func (d *decoder) int() int { return int(d.upTo(math.MaxInt32)) }

func (d *decoder) uint32() uint32 { return uint32(d.upTo(math.MaxUint32)) }

func (d *decoder) upTo(most uint64) uint64 {
	n := d.uint64()
	if n > most {
		d.fail("%d, the most is %d", n, most)
		return 0
	}
	return n
}
