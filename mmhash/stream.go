package mmhash

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/ringcache/ringcache/pycompat"
)

// maxDepth is how deep lists and maps may be nested.
const maxDepth = 64

// Tags of the framed form.
const (
	tagNone = iota
	tagSequence
	tagMapping
	tagLeaf
)

const (
	gather = 512 // parts are gathered up to here before they are hashed
)

// stream writes the bytes that are hashed. The same calls give both forms:
//
//   - framed: every part is preceded by its length in 8 bytes, every value by a
//     tag, and names stand once, before their values;
//   - joined: names and values stand side by side without lengths, and before
//     every leaf stands the whole path to it, "outer.inner.0". A list or map
//     without entries leaves nothing.
//
// The first error stays in err and nothing is written after it.
type stream struct {
	w     io.Writer
	rules pycompat.HashRules
	err   error

	buf   []byte // what was gathered and not yet written
	copy  []byte // of copyLen, made when needed
	path  []byte // joined form: all paths that are open, one behind the other
	base  int    // where the innermost begins
	depth int
}

// reset makes the stream begin anew, with what it has allocated.
func (s *stream) reset(w io.Writer) {
	*s = stream{w: w, rules: s.rules, buf: s.buf[:0], copy: s.copy, path: s.path[:0]}
}

func (s *stream) fail(sentinel error, format string, args ...any) {
	if s.err == nil {
		s.err = &ValueError{Problem: fmt.Sprintf(format, args...), sentinel: sentinel}
	}
}

func (s *stream) flush() {
	if s.err == nil && len(s.buf) > 0 {
		_, s.err = s.w.Write(s.buf)
	}
	s.buf = s.buf[:0]
}

// room makes sure that n bytes can be gathered.
func (s *stream) room(n int) {
	if len(s.buf)+n > gather {
		s.flush()
	}
}

func (s *stream) raw(b []byte) {
	s.room(len(b))
	switch {
	case s.err != nil:
	case len(b) > gather:
		_, s.err = s.w.Write(b) // large ones go as they are
	default:
		s.buf = append(s.buf, b...)
	}
}

func (s *stream) rawString(t string) {
	for len(t) > gather {
		s.room(gather)
		s.buf = append(s.buf, t[:gather]...)
		t = t[gather:]
	}
	s.room(len(t))
	s.buf = append(s.buf, t...)
}

func (s *stream) byte(b byte) {
	s.room(1)
	s.buf = append(s.buf, b)
}

func (s *stream) uint64(n uint64) {
	s.room(8)
	s.buf = binary.LittleEndian.AppendUint64(s.buf, n)
}

// length is that of the part which follows.
func (s *stream) length(n int64) {
	if s.rules.Framed {
		s.uint64(uint64(n))
	}
}

// text is a name or a string, both of which Python encodes as UTF-8.
func (s *stream) text(t string) {
	s.utf8(t)
	s.length(int64(len(t)))
	s.rawString(t)
}

func (s *stream) utf8(t string) {
	if !utf8.ValidString(t) {
		s.fail(errInvalid, "the text %s is not valid UTF-8; pass it as bytes", quote(t))
	}
}

// enter opens a path of its own with the name of its first part; leave closes
// it.
func (s *stream) enter(name string) (outer int) {
	outer, s.base = s.base, len(s.path)
	if s.rules.Framed {
		s.text(name)
	} else {
		s.utf8(name)
		s.path = append(s.path, name...)
	}
	return outer
}

func (s *stream) leave(outer int) {
	s.path, s.base = s.path[:s.base], outer
}

// key opens an entry of a map; up closes it.
func (s *stream) key(name string) (mark int) {
	mark = len(s.path)
	if s.rules.Framed {
		s.text(name)
	} else {
		s.utf8(name)
		s.path = append(append(s.path, '.'), name...)
	}
	return mark
}

// index opens an element of a list; up closes it.
func (s *stream) index(i int) (mark int) {
	mark = len(s.path)
	if !s.rules.Framed {
		s.path = strconv.AppendInt(append(s.path, '.'), int64(i), 10)
	}
	return mark
}

func (s *stream) up(mark int) { s.path = s.path[:mark] }

func (s *stream) sequence(n int) { s.container(tagSequence, n) }
func (s *stream) mapping(n int)  { s.container(tagMapping, n) }

func (s *stream) container(tag byte, n int) {
	if s.rules.Framed {
		s.byte(tag)
		s.uint64(uint64(n))
	}
}

// leaf comes before the parts of one.
func (s *stream) leaf() {
	if s.rules.Framed {
		s.byte(tagLeaf)
	} else {
		s.raw(s.path[s.base:])
	}
}

// The leaves with one part.

func (s *stream) leafBytes(b []byte) {
	s.leaf()
	s.length(int64(len(b)))
	s.raw(b)
}

func (s *stream) leafText(t string) {
	s.leaf()
	s.text(t)
}

func (s *stream) leafUint64(n uint64) {
	s.leaf()
	s.length(8)
	s.uint64(n)
}

func (s *stream) leafBool(v bool) {
	s.leaf()
	s.length(1)
	if v {
		s.byte(1)
	} else {
		s.byte(0)
	}
}
