package mmhash

import (
	"fmt"
	"io"
)

// Reader is bytes that are read while they are hashed and never held in memory
// as a whole. R must deliver exactly N bytes, then io.EOF: fewer are
// io.ErrUnexpectedEOF, more are [fs.ErrInvalid]. It is used up by being hashed.
type Reader struct {
	R io.Reader
	N int64
}

// copyLen is how much of a Reader is held at a time: enough to fill the vectors of
// BLAKE3, and little enough to stay in the processor's cache between read and hash.
const copyLen = 64 << 10

// leafData writes the bytes of a file, or those of a Reader if there is one.
func (s *stream) leafData(b []byte, in *Reader) {
	switch {
	case in != nil:
		s.leaf()
		s.length(in.N)
		s.read(in)
	case b == nil:
		s.fail(errInvalid, "the original bytes are missing: give Data or Reader")
	default:
		s.leafBytes(b)
	}
}

// read copies a Reader.
func (s *stream) read(b *Reader) {
	if b.R == nil || b.N < 0 {
		s.fail(errInvalid, "a Reader needs a reader and a length of 0 or more")
	}
	s.flush()
	if s.err != nil {
		return
	}
	if s.copy == nil {
		s.copy = make([]byte, copyLen)
	}
	for left := b.N; left > 0 && s.err == nil; {
		part := s.copy[:min(left, copyLen)]
		n, err := io.ReadFull(b.R, part)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			s.err = fmt.Errorf("mmhash: a Reader of %d bytes failed after %d: %w", b.N, b.N-left+int64(n), err)
			return
		}
		_, s.err = s.w.Write(part)
		left -= int64(n)
	}
	if s.err != nil {
		return
	}
	switch n, err := io.ReadFull(b.R, s.copy[:1]); {
	case n > 0:
		s.fail(errInvalid, "a Reader delivered more than its %d bytes", b.N)
	case err != io.EOF:
		s.err = fmt.Errorf("mmhash: a Reader failed after all its %d bytes: %w", b.N, err)
	}
}
