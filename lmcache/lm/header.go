package lm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

// Form is a form of the headers. LMCache has had three.
type Form int

// The forms, in the order in which releases brought them. The zero value is today's.
const (
	// Located headers have a location: 186 and 36 bytes (lmcache/v1/protocol.py of 0.3.5 to 0.5.6).
	Located Form = iota
	// Typed headers have dtype and shape, and no location: 182 and 32 bytes (lmcache/v1/protocol.py of 0.3.1).
	Typed
	// Untyped headers have a length only: 158 and 8 bytes (lmcache/protocol.py of releases up to 0.3.15, the
	// protocol of LMCache's first engine).
	Untyped
)

const (
	keySize = 150 // bytes of a key, with spaces behind it

	// recognized are the bytes of a header by which its form is recognized.
	recognized = 36
)

// RequestSize returns the bytes of a request's header.
func (f Form) RequestSize() int { return [...]int{36, 32, 8}[f] + keySize }

// ReplySize returns the bytes of a reply's header.
func (f Form) ReplySize() int { return [...]int{36, 32, 8}[f] }

// recognize returns the form of the header that begins with b. A key is a text, so the four bytes where it
// begins in one form are no number that is there in another one: formats are up to 8, and a fourth dimension of
// 2^29 or more leaves no room for others.
func recognize(b []byte) Form {
	switch {
	case isText(b[8:12]):
		return Untyped
	case isText(b[32:36]):
		return Typed
	}
	return Located
}

// isText reports whether bytes can be of a text in UTF-8 without control characters.
func isText(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c > 0xf4 })
}

// Command is what a request asks for.
type Command int32

// The commands.
const (
	Put    Command = 1 + iota // store a value, without a reply
	Get                       // get a value
	Exist                     // is a value there
	List                      // no release answers it but of Untyped
	Health                    // is the server there
)

// Code is the answer of a reply.
type Code int32

// The codes.
const (
	Success Code = 200
	Fail    Code = 400
)

// maxNumber is the most of a format and of a dtype, and maxLocation of a location.
const (
	maxNumber   = 8
	maxLocation = 2
)

// Meta describes the bytes of a value, in LMCache's numbers.
type Meta struct {
	Format int32 // MemoryFormat, 0 to 8
	DType  int32 // 0 to 8; 1 and 2 are both float16
	Shape  [4]int32
}

// nothing is what a header without a value has.
var nothing = Meta{Format: 1, DType: 2}

// Request is the header of a request. Bytes follow that of Put, Length of them.
type Request struct {
	Command  Command
	Key      string // as it was sent, without spaces around it
	Length   int32
	Meta     Meta
	Location int32 // 0 to 2
}

// Reply is the header of a reply. The bytes of a value follow that to Get.
type Reply struct {
	Code     Code
	Length   int32
	Meta     Meta
	Location int32
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("lm: "+format+": %w", append(args, fs.ErrInvalid)...)
}

// check reports what is wrong with a Meta.
func (m Meta) check() error {
	if m.Format < 0 || m.Format > maxNumber || m.DType < 0 || m.DType > maxNumber {
		return invalid("the format is %d and the dtype %d, and both are 0 to %d", m.Format, m.DType, maxNumber)
	}
	return nil
}

// AppendRequest appends a header.
func (f Form) AppendRequest(dst []byte, q *Request) ([]byte, error) {
	switch {
	case len(q.Key) > keySize || !utf8.ValidString(q.Key) || q.Key != strings.TrimSpace(q.Key):
		return nil, invalid("the key %q is no UTF-8 of at most %d bytes without spaces around it", q.Key, keySize)
	case q.Command < Put || q.Command > Health:
		return nil, invalid("there is no command %d", q.Command)
	case q.Length < 0:
		return nil, invalid("the length is %d", q.Length)
	case q.Location < 0 || q.Location > maxLocation:
		return nil, invalid("the location %d is not 0 to %d", q.Location, maxLocation)
	}
	if err := q.Meta.check(); err != nil {
		return nil, err
	}
	dst = appendWords(dst, int32(q.Command), q.Length)
	if f != Untyped {
		dst = appendWords(dst, q.Meta.Format, q.Meta.dtype())
		if f == Located {
			dst = appendWords(dst, q.Location)
		}
		dst = appendWords(dst, q.Meta.Shape[:]...)
	}
	dst = append(dst, q.Key...)
	return append(dst, strings.Repeat(" ", keySize-len(q.Key))...), nil
}

// DecodeRequest reads the header of RequestSize bytes. What LMCache's own decoder takes, it takes, and a
// negative length of a Put it refuses.
func (f Form) DecodeRequest(b []byte) (Request, error) {
	if len(b) != f.RequestSize() {
		return Request{}, invalid("a header has %d bytes, not %d", len(b), f.RequestSize())
	}
	q := Request{Command: Command(word(b, 0)), Length: word(b, 4)}
	key := b[f.ReplySize():] // the fields in front of a key are as many as those of a reply
	if f != Untyped {
		rest := b[8:f.ReplySize()]
		q.Meta.Format, q.Meta.DType = word(rest, 0), word(rest, 4)
		if rest = rest[8:]; f == Located {
			q.Location, rest = word(rest, 0), rest[4:]
		}
		for i := range q.Meta.Shape {
			q.Meta.Shape[i] = word(rest, 4*i)
		}
	}
	if !utf8.Valid(key) {
		return Request{}, invalid("the key %q is no UTF-8", key)
	}
	q.Key = string(bytes.TrimSpace(key))
	switch {
	case q.Command < Put || q.Command > Health:
		return Request{}, invalid("there is no command %d", q.Command)
	case q.Command == Put && q.Length < 0:
		return Request{}, invalid("the length of a value is %d", q.Length)
	case q.Location < 0 || q.Location > maxLocation:
		return Request{}, invalid("the location %d is not 0 to %d", q.Location, maxLocation)
	}
	if err := q.Meta.check(); err != nil {
		return Request{}, err
	}
	q.Meta.DType = q.Meta.dtype()
	return q, nil
}

// AppendReply appends a header.
func (f Form) AppendReply(dst []byte, p *Reply) ([]byte, error) {
	switch {
	case p.Length < 0:
		return nil, invalid("the length is %d", p.Length)
	case p.Location < 0 || p.Location > maxLocation:
		return nil, invalid("the location %d is not 0 to %d", p.Location, maxLocation)
	}
	if err := p.Meta.check(); err != nil {
		return nil, err
	}
	dst = appendWords(dst, int32(p.Code), p.Length)
	if f != Untyped {
		dst = appendWords(dst, p.Meta.Format, p.Meta.dtype())
		dst = appendWords(dst, p.Meta.Shape[:]...)
		if f == Located {
			dst = appendWords(dst, p.Location)
		}
	}
	return dst, nil
}

// DecodeReply reads the header of ReplySize bytes.
func (f Form) DecodeReply(b []byte) (Reply, error) {
	if len(b) != f.ReplySize() {
		return Reply{}, invalid("a header has %d bytes, not %d", len(b), f.ReplySize())
	}
	p := Reply{Code: Code(word(b, 0)), Length: word(b, 4)}
	if f != Untyped {
		p.Meta.Format, p.Meta.DType = word(b, 8), word(b, 12)
		for i := range p.Meta.Shape {
			p.Meta.Shape[i] = word(b, 16+4*i)
		}
		if f == Located {
			p.Location = word(b, 32)
		}
	}
	switch {
	case p.Code != Success && p.Code != Fail:
		return Reply{}, invalid("there is no code %d", p.Code)
	case p.Length < 0:
		return Reply{}, invalid("the length is %d", p.Length)
	case p.Location < 0 || p.Location > maxLocation:
		return Reply{}, invalid("the location %d is not 0 to %d", p.Location, maxLocation)
	}
	if err := p.Meta.check(); err != nil {
		return Reply{}, err
	}
	p.Meta.DType = p.Meta.dtype()
	return p, nil
}

// dtype returns the number that LMCache writes.
func (m Meta) dtype() int32 {
	if m.DType == 1 {
		return 2
	}
	return m.DType
}

// Numbers are in the byte order of the machine, which is little-endian on every one that LMCache runs on.
func appendWords(dst []byte, words ...int32) []byte {
	for _, w := range words {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(w))
	}
	return dst
}

func word(b []byte, at int) int32 { return int32(binary.LittleEndian.Uint32(b[at:])) }
