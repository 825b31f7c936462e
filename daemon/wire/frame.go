package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	header    = 4         // bytes of a frame's length
	firstRoom = 4 << 10   // bytes that a Reader begins with
	keptRoom  = 128 << 10 // bytes that a Reader keeps between frames
)

// Reader reads frames. It takes memory for what has arrived, not for what a peer announces: its buffer at
// most doubles each time that it is full.
//
// A Reader is for one goroutine.
type Reader struct {
	from     io.Reader
	most     int
	small    int // bytes of a body that admit is not asked about
	admit    func(n int) error
	admitted bool // the frame that is being read
	buf      []byte
	off, end int // what is read already and not yet returned is buf[off:end]
}

// NewReader returns a Reader of bodies of at most so many bytes: [MaxRequest] or [MaxReply].
func NewReader(r io.Reader, most int) *Reader {
	return &Reader{from: r, most: most}
}

// Admit makes the Reader ask before it takes memory for a body of more than so many bytes, by its length,
// once. An error of admit is one of Next, which asks again when it is called again.
func (r *Reader) Admit(small int, admit func(n int) error) { r.small, r.admit = small, admit }

// Next returns the body of the next frame, which is valid until the next call. The error is io.EOF where
// the stream ends between two frames, io.ErrUnexpectedEOF inside of one, an *[Error] of [KindInvalid] for a
// length that no message has, or the stream's. After an error of the stream, such as a timeout, Next may be
// called again and goes on where it was; nothing can be read after an *[Error].
func (r *Reader) Next() ([]byte, error) {
	for {
		need := header
		if have := r.end - r.off; have >= header {
			n := binary.LittleEndian.Uint32(r.buf[r.off:])
			if n == 0 || uint64(n) > uint64(r.most) {
				return nil, invalid("a frame has %d bytes, want 1 to %d: this is not the protocol of ringcache, or the message is too large", n, r.most)
			}
			if r.admit != nil && int(n) > r.small && !r.admitted {
				if err := r.admit(int(n)); err != nil {
					return nil, err
				}
				r.admitted = true
			}
			need += int(n)
			if have >= need {
				body := r.buf[r.off+header : r.off+need : r.off+need]
				r.off += need
				r.admitted = false
				return body, nil
			}
		}
		if err := r.fill(need); err != nil {
			return nil, err
		}
	}
}

// Forget gives up the body that Next returned last, and the memory of a large one.
func (r *Reader) Forget() {
	if r.off == r.end && len(r.buf) > firstRoom {
		r.buf, r.off, r.end = nil, 0, 0
	}
}

// Partial reports whether the beginning of a frame has arrived, and not yet all of it: a peer that is
// silent then has stalled, and is not just idle.
func (r *Reader) Partial() bool { return r.end > r.off }

// fill reads once, into a buffer for need bytes or, if they are many, for twice those that are there.
func (r *Reader) fill(need int) error {
	have := r.end - r.off
	switch {
	case have == 0 && len(r.buf) > keptRoom:
		r.buf, r.off, r.end = nil, 0, 0
	case have == 0:
		r.off, r.end = 0, 0
	case r.off > 0 && r.off+need > len(r.buf):
		copy(r.buf, r.buf[r.off:r.end])
		r.off, r.end = 0, have
	}
	if r.end == len(r.buf) {
		grown := make([]byte, max(firstRoom, min(need, 2*len(r.buf))))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	n, err := r.from.Read(r.buf[r.end:])
	if n < 0 || n > len(r.buf)-r.end {
		return fmt.Errorf("wire: a stream returned %d bytes for %d", n, len(r.buf)-r.end)
	}
	r.end += n
	switch {
	case n > 0:
		return nil // an error comes again
	case err == io.EOF && r.Partial(): //nolint:errorlint // as io.ReadFull: a stream returns io.EOF itself
		return io.ErrUnexpectedEOF
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// begin appends room for the length of a frame, and finish sets it.
func begin(b []byte) []byte { return append(b, 0, 0, 0, 0) }

func finish(b []byte, start, most int) error {
	n := len(b) - start - header
	if n > most {
		return invalid("a message has %d bytes, the most is %d: ask for less at a time", n, most)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(n))
	return nil
}

func invalid(format string, args ...any) *Error {
	return &Error{Kind: KindInvalid, Text: fmt.Sprintf(format, args...)}
}
