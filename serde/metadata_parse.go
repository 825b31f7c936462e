package serde

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/codec"
)

// ParseMetadata reads the metadata pickle at the start of b and returns its
// length n; bytes behind it are not looked at, as with Python's pickle.loads.
// [ParsePayload] is for a pickle that has its data behind it.
//
// It is no unpickler: it accepts the one tuple in the two forms that are
// written, CPython's protocol 5 and the protocol 2 of vLLM's Rust port, and
// nothing else. Lens are not negative and sum up to NBytes, and there are no more
// of them than a document of Lens[0] bytes can refer to: a longer list is refused
// before it is read. The memory it takes is bounded by the length of the pickle.
// The error wraps [ErrCorrupt].
func ParseMetadata(b []byte) (m Metadata, n int, err error) {
	p := unpickler{b: b}
	m = p.tuple()
	if p.err != nil {
		return Metadata{}, 0, p.err
	}
	return m, p.pos, nil
}

// ParsePayload splits the payload of a chunk, without its reader count, into the
// metadata at its start and the data, which are the m.NBytes last bytes. It
// compares NBytes with the bytes that are there before it reads the list of frame
// lengths: the work and the memory it takes are bounded by the document that b
// really has. The error wraps [ErrCorrupt].
func ParsePayload(b []byte) (m Metadata, data []byte, err error) { return parsePayload(b, nil) }

// parsePayload is ParsePayload with Lens in the memory of lens, as far as it suffices.
func parsePayload(b []byte, lens []int64) (m Metadata, data []byte, err error) {
	p := unpickler{b: b, payload: true, lens: lens}
	m = p.tuple()
	if p.err != nil {
		return Metadata{}, nil, p.err
	}
	return m, b[len(b)-int(m.NBytes):], nil
}

// unpickler walks over the pickle; the first error sticks and makes every later
// step a no-op that reads zeros.
type unpickler struct {
	b        []byte
	lens     []int64 // memory for the list
	pos      int
	payload  bool // the data end b
	frameEnd int  // 0 outside a frame
	python   bool
	err      error
}

func (p *unpickler) fail(want, got string) {
	if p.err == nil {
		p.err = &codec.CorruptError{What: "metadata pickle", Offset: p.pos, Want: want, Got: got}
	}
}

// take returns the next n bytes.
func (p *unpickler) take(n int) []byte {
	end := len(p.b)
	if p.frameEnd != 0 {
		end = min(end, p.frameEnd)
	}
	if p.err != nil || n > end-p.pos {
		p.fail(fmt.Sprintf("%d more bytes", n), fmt.Sprintf("%d", end-p.pos))
		return nil
	}
	s := p.b[p.pos : p.pos+n]
	p.pos += n
	return s
}

func (p *unpickler) u8() byte {
	if s := p.take(1); s != nil {
		return s[0]
	}
	return 0
}

// op reads an opcode, opening the next frame where there is one.
func (p *unpickler) op() byte {
	if p.python && (p.frameEnd == 0 || p.pos == p.frameEnd) {
		p.frameEnd = 0
		if p.peek() == opFrame {
			p.u8()
			s := p.take(8)
			if s == nil {
				return 0
			}
			n := binary.LittleEndian.Uint64(s)
			if n == 0 || n > uint64(len(p.b)-p.pos) {
				p.fail(fmt.Sprintf("a frame of 1 to %d bytes", len(p.b)-p.pos), fmt.Sprintf("%d", n))
				return 0
			}
			p.frameEnd = p.pos + int(n)
		}
	}
	return p.u8()
}

func (p *unpickler) peek() byte {
	if p.err == nil && p.pos < len(p.b) {
		return p.b[p.pos]
	}
	return 0
}

func (p *unpickler) expect(want byte) {
	if got := p.op(); got != want && p.err == nil {
		p.pos--
		p.fail(fmt.Sprintf("opcode %#02x", want), fmt.Sprintf("%#02x", got))
	}
}

func (p *unpickler) tuple() (m Metadata) {
	p.expect(opProto)
	switch v := p.u8(); {
	case p.err != nil:
		return m
	case v == 5:
		p.python = true
	case v == 2:
		p.expect(opMark)
	default:
		p.pos--
		p.fail("pickle protocol 5 or 2", fmt.Sprintf("%d", v))
		return m
	}
	m.Type = p.str()
	m.NBytes = p.int(p.op())
	if p.payload && p.err == nil {
		rest := len(p.b) - p.pos
		if m.NBytes > int64(rest) {
			p.fail(fmt.Sprintf("at most the %d bytes that are there", rest), fmt.Sprintf("%d", m.NBytes))
			return m
		}
		p.b = p.b[:len(p.b)-int(m.NBytes)] // the pickle ends where the data begin, or before
	}
	if c := p.op(); c == opNone && p.python {
		m.Lens = nil
	} else if c == opEmptyList {
		m.Lens = p.list(m.NBytes)
	} else if p.err == nil {
		p.pos--
		p.fail("a list or None", fmt.Sprintf("opcode %#02x", c))
	}
	if p.python {
		p.expect(opTuple3)
		p.expect(opMemoize)
	} else {
		p.expect(opTuple)
	}
	p.expect(opStop)
	if p.frameEnd != 0 && p.pos != p.frameEnd {
		p.fail("the end of the frame", fmt.Sprintf("%d more bytes", p.frameEnd-p.pos))
	}
	p.checkSum(m)
	return m
}

func (p *unpickler) str() string {
	n := 0
	switch c := p.op(); c {
	case opShortBinUnicode:
		n = int(p.u8())
	case opBinUnicode:
		s := p.take(4)
		if s == nil {
			return ""
		}
		u := binary.LittleEndian.Uint32(s)
		if uint64(u) > uint64(len(p.b)) {
			p.fail("a name inside the pickle", fmt.Sprintf("one of %d bytes", u))
			return ""
		}
		n = int(u)
	default:
		p.pos--
		p.fail("a type name", fmt.Sprintf("opcode %#02x", c))
		return ""
	}
	s := typeName(p.take(n))
	if !utf8.ValidString(s) {
		p.fail("a type name in UTF-8", fmt.Sprintf("%q", s))
	}
	if p.python {
		p.expect(opMemoize)
	}
	return s
}

// typeName returns a string, which it need not make for the types that values have.
func typeName(b []byte) string {
	switch string(b) {
	case typeItem:
		return typeItem
	case typeTensor:
		return typeTensor
	case typePickle:
		return typePickle
	}
	return string(b)
}

// int reads the argument of the integer opcode c; lengths are never negative.
func (p *unpickler) int(c byte) (n int64) {
	switch c {
	case opBinInt1:
		return int64(p.u8())
	case opBinInt2:
		if s := p.take(2); s != nil {
			n = int64(binary.LittleEndian.Uint16(s))
		}
	case opBinInt:
		if s := p.take(4); s != nil {
			n = int64(int32(binary.LittleEndian.Uint32(s)))
		}
	case opLong1:
		size := int(p.u8())
		if size < 1 || size > 8 {
			p.fail("an integer of 1 to 8 bytes", fmt.Sprintf("%d", size))
			return 0
		}
		for i, b := range p.take(size) {
			n |= int64(b) << (8 * i)
		}
		n = n << (64 - 8*size) >> (64 - 8*size)
	default:
		if p.err == nil {
			p.pos--
		}
		p.fail("an integer", fmt.Sprintf("opcode %#02x", c))
		return 0
	}
	if n < 0 {
		p.fail("a length that is not negative", fmt.Sprintf("%d", n))
	}
	return n
}

// list reads what follows the empty list: batches of integers, appended one
// (INT APPEND) or many (MARK INT... APPENDS) at a time. They are the lengths of
// frames of nbytes together.
func (p *unpickler) list(nbytes int64) []int64 {
	if p.python {
		p.expect(opMemoize)
	}
	lens := p.lens[:0]
	if lens == nil {
		lens = make([]int64, 0, 4)
	}
	add := func() {
		if len(lens) > 0 && int64(len(lens)) > maxFrames(lens[0]) {
			p.fail(fmt.Sprintf("at most the %d frames that a document of %d bytes can refer to",
				maxFrames(lens[0]), lens[0]), "more")
			return
		}
		n := p.int(p.op())
		if n > nbytes {
			p.fail(fmt.Sprintf("a frame of at most the %d bytes of all", nbytes), fmt.Sprintf("%d", n))
		}
		lens = append(lens, n)
	}
	for p.err == nil {
		switch p.nextOp() {
		case opMark:
			p.op()
			for more := true; more; more = p.err == nil && p.nextOp() != opAppends { // no batch is empty
				add()
			}
			p.expect(opAppends)
		case opBinInt, opBinInt1, opBinInt2, opLong1:
			add()
			p.expect(opAppend)
		default:
			return lens
		}
	}
	return lens
}

// minReference is the length of the shortest array that refers to a frame: its
// header, a name of three letters behind theirs, an empty shape and the index.
const minReference = 1 + 1 + 3 + 1 + 1

// maxFrames is the number of frames that a document can refer to, each of which
// is referred to once: a list of more of them is a way to make a reader work and
// allocate for bytes that need not be there, since frames may be empty.
func maxFrames(document int64) int64 { return document / minReference }

// nextOp looks at the next opcode, beyond the header of a frame.
func (p *unpickler) nextOp() byte {
	c := p.peek()
	if at := p.pos + frameHeader; c == opFrame && p.python && p.pos == p.frameEnd && at < len(p.b) {
		return p.b[at]
	}
	return c
}

func (p *unpickler) checkSum(m Metadata) {
	if p.err != nil || m.Lens == nil {
		return
	}
	sum := uint64(0) // no overflow: each step adds less than 2^63 to less than 2^63
	for _, n := range m.Lens {
		if sum += uint64(n); sum > uint64(m.NBytes) {
			break
		}
	}
	if sum != uint64(m.NBytes) {
		p.fail(fmt.Sprintf("frame lengths that sum up to %d", m.NBytes), fmt.Sprintf("%d", sum))
	}
}
