package wire

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// maxDepth is the deepest nesting of a body. No message of this version has more than 4 levels; later
// versions may have more under keys that this one skips.
const maxDepth = 16

// maxPath is how many maps are inside of each other in a message: a reply, its state, one of the levels.
const maxPath = 3

// DecodeRequest reads the body of a frame into q, whose earlier contents go; the room of its lists is used
// again. Texts and notes are memory of their own. Keys that this version does not know are skipped, and so
// are fields that the Op has not: a later client means something by them that it can do without. The error
// is an *[Error]: [KindInvalid] names the field, [KindUnsupported] the Op, and [KindVersion] is for a Hello
// in another version of the protocol.
//
// If q.ID is not 0 after an error, the body was a request as such, and the error can be sent as its reply;
// the connection goes on, unless the error is of KindVersion. If q.ID is 0, nobody knows what the peer
// means: reply with the error and the ID 0, if at all, and close the connection.
func DecodeRequest(body []byte, q *Request) error {
	var d decoder
	d.begin("request", body)
	if d.err != nil {
		*q = Request{}
		return d.err
	}
	d.request(q)
	err := d.end()
	if err == nil {
		err = q.check(q.drop())
	}
	if err == nil {
		return nil
	}
	id, version, hello := salvage(body)
	*q = Request{ID: id}
	if hello && version != Version {
		return versionError(version) // rather than an error about what is new in that version
	}
	return err
}

// DecodeReply reads the body of a frame into p, whose earlier contents go; the room of its lists is used
// again. Texts and notes are memory of their own. Keys that this version does not know are skipped. The
// error is an *[Error] of [KindInvalid]: nothing more can be trusted on that connection. An error that the
// daemon sent is in p.Error, and not an error of DecodeReply; its Kind may be one that this version does
// not know.
func DecodeReply(body []byte, p *Reply) error {
	var d decoder
	d.begin("reply", body)
	if d.err == nil {
		d.reply(p)
		switch {
		case d.err != nil:
		case p.Error != nil && p.used()&^(1<<replyID|1<<replyError) != 0:
			d.fail("an error and something else")
		case p.Error == nil && p.ID == 0:
			d.fail("an answer without an id")
		}
	}
	err := d.end()
	if err != nil {
		*p = Reply{}
	}
	return err
}

// salvage reads what every version of the protocol has in a request, whatever else is in it: a map with an
// ID and an op, and in a Hello the version. What is not there is 0, and all is if one of them is there
// twice.
func salvage(body []byte) (id uint64, version int, hello bool) {
	n, rest, err := msgp.ReadMapHeaderBytes(body)
	if err != nil {
		return 0, 0, false
	}
	at := len(body) - len(rest)
	var seen set
	for range n {
		key, _, err := msgp.ReadStringZC(body[at:])
		if at, _ = next(body, at); err != nil {
			at, _ = next(body, at) // no text: another version's business
			continue
		}
		value := body[at:]
		at, _ = next(body, at)
		k := slices.Index(requestKeys[:requestVersion+1], string(key))
		if k < 0 {
			continue
		}
		if seen.has(k) {
			return 0, 0, false
		}
		switch k {
		case requestID:
			id, _, _ = msgp.ReadUint64Bytes(value)
		case requestOp:
			op, _, _ := msgp.ReadStringZC(value)
			hello = string(op) == string(Hello)
		case requestVersion:
			v, _, err := msgp.ReadUint64Bytes(value)
			if err != nil {
				continue
			}
			version = int(min(v, math.MaxInt32))
		}
		seen.when(k, true)
	}
	return id, version, hello && seen.has(requestVersion)
}

// next returns where the value behind the one at a position begins, in a body that the guard has checked.
func next(body []byte, at int) (int, error) {
	return msgpackguard.Next(body, at, msgpackguard.Limits{Depth: maxDepth})
}

// set is a set of fields of a message, by their numbers.
type set uint32

func (s set) has(n int) bool { return s>>n&1 != 0 }

// first returns the lowest number in a set that is not empty.
func (s set) first() int { return bits.TrailingZeros32(uint32(s)) }

// when adds a field if it is there.
func (s *set) when(n int, there bool) {
	if there {
		*s |= 1 << n
	}
}

// decoder reads one body that msgpackguard has checked, so that no value is cut short: msgp's errors about
// a value whose type is known are none. After the first problem it reads nothing more, and what it returns is
// zero: callers look at err at the end of each loop.
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

// begin checks a body, after which nothing in it is deeper than maxDepth, or ends behind the body.
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

// fail notes the first problem, with where it is.
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

// open begins a map, and returns how many pairs it has.
func (d *decoder) open() int {
	if !d.is("a map", msgp.MapType) {
		return 0
	}
	n, rest, _ := msgp.ReadMapHeaderBytes(d.rest)
	d.rest = rest
	d.deep++
	return int(n)
}

// key reads the key of a pair.
func (d *decoder) key() []byte {
	d.deep-- // a problem of the key is one of the map
	if !d.is("a text as a key", msgp.StrType) {
		return nil
	}
	key, rest, _ := msgp.ReadStringZC(d.rest)
	d.rest = rest
	d.deep++
	return key
}

// at is called before a value is read, with the number of its key, which may be there once.
func (d *decoder) at(seen *set, n int, key string) *decoder {
	if d.err != nil {
		return d
	}
	if seen.has(n) {
		d.deep--
		d.fail("the key %q twice", key)
		return d
	}
	seen.when(n, true)
	d.path[d.deep-1] = step{key: key, index: -1}
	return d
}

// skip goes on behind the value of a key that this version does not know.
func (d *decoder) skip() {
	if d.err == nil {
		end, _ := next(d.rest, 0)
		d.rest = d.rest[end:]
	}
}

// close ends a map.
func (d *decoder) close() {
	if d.err == nil {
		d.deep--
	}
}

// needs refuses a map without a key.
func (d *decoder) needs(seen set, n int, key string) {
	if d.err == nil && !seen.has(n) {
		d.fail("the key %q is missing", key)
	}
}

// list begins a list of at most so many elements, and returns how many it has.
func (d *decoder) list(most int) int {
	if !d.is("a list", msgp.ArrayType) {
		return 0
	}
	n, rest, _ := msgp.ReadArrayHeaderBytes(d.rest)
	d.rest = rest
	if uint64(n) > uint64(most) {
		d.fail("%d of them, the most in one message is %d", n, most)
		return 0
	}
	return int(n)
}

// next reports whether element i of n is to be read now.
func (d *decoder) next(i, n int) bool {
	if d.err != nil {
		return false
	}
	at := &d.path[d.deep-1].index
	if i == n {
		*at = -1
		return false
	}
	*at = i
	return true
}

// grow makes element i the last one of a list. What was there before is there again, to be read over.
func grow[T any](list []T, i int) []T {
	if i < cap(list) {
		return list[:i+1]
	}
	var zero T
	return append(list, zero)
}

// text reads a text into memory of its own, or returns the old one if it is the same.
func (d *decoder) text(old string) string {
	if !d.is("a text", msgp.StrType) {
		return ""
	}
	s, rest, _ := msgp.ReadStringZC(d.rest)
	d.rest = rest
	switch {
	case string(s) == old:
		return old
	case !utf8.Valid(s):
		d.fail("%.64q is not UTF-8", s)
		return ""
	}
	return string(s)
}

// texts reads a list of texts over an old one.
func (d *decoder) texts(old []string, most int) []string {
	for i, n := 0, d.list(most); d.next(i, n); i++ {
		old = grow(old, i)
		old[i] = d.text(old[i])
	}
	return old
}

// word reads a word, which takes no memory if it is one of the known ones. Only an open list of them may
// have others.
func word[T ~string](d *decoder, known []T, open bool) T {
	if !d.is("a text", msgp.StrType) {
		return ""
	}
	s, rest, _ := msgp.ReadStringZC(d.rest)
	for _, w := range known {
		if string(s) == string(w) {
			d.rest = rest
			return w
		}
	}
	if !open {
		d.fail("%.64q is unknown, want one of %q", s, known)
	}
	return T(d.text(""))
}

// bytes reads bytes into memory of their own.
func (d *decoder) bytes() []byte {
	if !d.is("bytes", msgp.BinType) {
		return nil
	}
	b, rest, _ := msgp.ReadBytesZC(d.rest)
	d.rest = rest
	if len(b) == 0 {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

func (d *decoder) bool() bool {
	if !d.is("a bool", msgp.BoolType) {
		return false
	}
	v, rest, _ := msgp.ReadBoolBytes(d.rest)
	d.rest = rest
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
	d.rest = rest
	return n
}

// int64 reads an integer from low, which is 0 or -1.
func (d *decoder) int64(low int64) int64 {
	if low < 0 && len(d.rest) > 0 && d.rest[0] >= 0x80 && d.is("an integer", msgp.IntType, msgp.UintType) {
		if n, rest, err := msgp.ReadInt64Bytes(d.rest); err == nil && n < 0 {
			d.rest = rest
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
