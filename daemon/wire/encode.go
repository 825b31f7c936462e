package wire

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// AppendRequest appends the frame of a request to b: the length, and the body without fields that are zero.
// It does not look at what belongs to which Op; [Request.Validate] does. The error is an *[Error] of
// [KindInvalid] about a text that is not UTF-8, a negative number, too many names, or more than MaxRequest
// bytes; b is returned unchanged then.
func AppendRequest(b []byte, q *Request) ([]byte, error) {
	e := encoding{b: begin(b), what: "request"}
	e.request(q)
	return e.end(b, MaxRequest)
}

// AppendReply appends the frame of a reply to b, as [AppendRequest]. What is not UTF-8 in the text of an
// Error is replaced, since such a text may cite anything. The error is an *[Error] of [KindInvalid], about
// a text that is not UTF-8, a number out of range, or more than MaxReply bytes.
func AppendReply(b []byte, p *Reply) ([]byte, error) {
	e := encoding{b: begin(b), what: "reply"}
	switch {
	case p.Error != nil && p.used()&^(1<<replyID|1<<replyError) != 0:
		e.key = "error"
		e.fail("there is something else in the reply")
	case p.Error != nil && p.Error.Kind == "":
		e.key = "kind"
		e.fail("it is missing")
	case p.Error == nil && p.ID == 0:
		e.key = "id"
		e.fail("it is missing")
	}
	e.reply(p)
	return e.end(b, MaxReply)
}

// ReplySize returns how many bytes AppendReply appends for p at most.
func ReplySize(p *Reply) int { return header + p.size() }

// encoding writes one body. After the first problem what it writes is of no use.
type encoding struct {
	b    []byte
	what string // "request" or "reply"
	key  string // that is being written
	err  *Error
}

// end sets the length of the frame. After a problem it returns b, to which nothing was appended.
func (e *encoding) end(b []byte, most int) ([]byte, error) {
	if e.err != nil {
		return b, e.err
	}
	if err := finish(e.b, len(b), most); err != nil {
		return b, err
	}
	return e.b, nil
}

func (e *encoding) fail(format string, args ...any) {
	if e.err == nil {
		e.err = invalid(e.what+": "+e.key+": "+format, args...)
	}
}

// pairs is a map that is being written: where its header is, and how many pairs it has so far.
type pairs struct{ at, n int }

// fewPairs is how many pairs a map with a header of one byte has at most.
const fewPairs = 15

// open begins a map, and close sets its number of pairs.
func (e *encoding) open() pairs {
	e.b = append(e.b, 0x80)
	return pairs{at: len(e.b) - 1}
}

func (e *encoding) close(m pairs) {
	if m.n <= fewPairs {
		e.b[m.at] |= byte(m.n)
		return
	}
	e.b[m.at] = 0xde // a map whose number of pairs follows, in two bytes
	e.b = slices.Insert(e.b, m.at+1, 0, byte(m.n))
}

// at writes a key of less than 32 bytes.
func (e *encoding) at(m *pairs, key string) *encoding {
	m.n++
	e.key = key
	e.b = append(e.b, 0xa0|byte(len(key)))
	e.b = append(e.b, key...)
	return e
}

// The methods that follow write a pair, unless its value is zero.

func (e *encoding) bool(m *pairs, key string, v bool) {
	if v {
		e.at(m, key)
		e.b = msgp.AppendBool(e.b, v)
	}
}

func (e *encoding) uint(m *pairs, key string, n uint64) {
	if n != 0 {
		e.at(m, key).putUint(n)
	}
}

// int writes an integer that is an int on every system.
func (e *encoding) int(m *pairs, key string, n int) { e.upTo(m, key, int64(n), 1<<31-1) }

func (e *encoding) int64(m *pairs, key string, n int64) { e.upTo(m, key, n, 1<<63-1) }

func (e *encoding) upTo(m *pairs, key string, n, most int64) {
	if n == 0 {
		return
	}
	e.at(m, key).putUint(uint64(n))
	if n < 0 || n > most {
		e.fail("%d, want 0 to %d", n, most)
	}
}

// orUnknown writes an integer from -1.
func (e *encoding) orUnknown(m *pairs, key string, n int64) {
	if n != -1 {
		e.int64(m, key, n)
		return
	}
	e.at(m, key)
	e.b = msgp.AppendInt64(e.b, n)
}

func (e *encoding) text(m *pairs, key, s string) {
	if s != "" {
		e.at(m, key).putText(s)
	}
}

func (e *encoding) bytes(m *pairs, key string, v []byte) {
	if len(v) > 0 {
		e.at(m, key)
		e.b = msgp.AppendBytes(e.b, v)
	}
}

func (e *encoding) texts(m *pairs, key string, list []string, most int) {
	if len(list) == 0 {
		return
	}
	for i := range e.at(m, key).list(len(list), most) {
		e.putText(list[i])
	}
}

func (e *encoding) putUint(n uint64) { e.b = msgp.AppendUint64(e.b, n) }

func (e *encoding) putText(s string) {
	if !utf8.ValidString(s) {
		e.fail("%.64q is not UTF-8", s)
	}
	e.b = msgp.AppendString(e.b, s)
}

// list begins a list, and returns how many elements are to be written: none of one that no message can have.
func (e *encoding) list(n, most int) int {
	if n > most {
		e.fail("%d of them, the most in one message is %d", n, most)
		return 0
	}
	e.b = msgp.AppendArrayHeader(e.b, uint32(n))
	return n
}

// oneOf writes a word that the other side knows. It has less than 32 bytes.
func oneOf[T ~string](e *encoding, known []T, w T) {
	if !slices.Contains(known, w) {
		e.fail("%.64q is unknown, want one of %q", w, known)
	}
	e.b = append(e.b, 0xa0|byte(len(w)))
	e.b = append(e.b, w...)
}

// readable makes a text for people fit for a message.
func readable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// sizeOf returns how many bytes a pair takes whose value has n: its room besides, and none if it is left out.
func sizeOf(room, n int) int {
	if n == 0 {
		return 0
	}
	return room + n
}

func sizeOfTexts(room int, list []string) (n int) {
	for _, s := range list {
		n += 5 + len(s)
	}
	return sizeOf(room, n)
}
