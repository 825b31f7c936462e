package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	errTooLarge = errors.New("zmtp: the peer announced a message above the limit")
	errCommand  = errors.New("zmtp: the peer sent a command, which this version of the protocol has not")
)

// The stream of a peer (ZMTP 3.0): a greeting of 64 bytes, then frames, each of
// flags, a size of 1 byte or 8 big-endian ones, and a body.
const (
	greetingSize = 64
	flagMore     = 1
	flagLong     = 2
	flagCommand  = 4
	shortHeader  = 2
	longHeader   = 9
)

// sizes follows the stream and refuses a message that is larger than limit
// before anyone makes room for it. It also refuses commands behind the first,
// which belongs to the greeting: ZMTP 3.0 has none, and a command would be taken for a
// message.
type sizes struct {
	limit   int64
	greeted int    // bytes of the greeting that passed
	body    uint64 // bytes of the frame at hand that are still to come
	header  []byte
	buf     [longHeader]byte
	total   uint64 // bytes of the message so far
	ready   bool   // the first command is over
}

func (s *sizes) pass(p []byte) error {
	if n := min(greetingSize-s.greeted, len(p)); n > 0 {
		s.greeted += n
		p = p[n:]
	}
	for len(p) > 0 {
		if n := min(s.body, uint64(len(p))); n > 0 {
			s.body -= n
			p = p[n:]
			continue
		}
		s.header = append(s.buf[:len(s.header)], p[0])
		p = p[1:]
		if err := s.frame(); err != nil {
			return err
		}
	}
	return nil
}

// frame looks at a header, if it is complete.
func (s *sizes) frame() error {
	h := s.header
	long := h[0]&flagLong != 0
	switch {
	case !long && len(h) == shortHeader:
		s.body = uint64(h[1])
	case len(h) == longHeader:
		s.body = binary.BigEndian.Uint64(h[1:])
	default:
		return nil
	}
	if h[0]&flagCommand != 0 {
		if s.ready {
			return errCommand
		}
		s.ready = true
	}
	// A frame takes memory of its own, even an empty one.
	const overhead = 32
	if left := uint64(s.limit) - s.total; s.body > left || left-s.body < overhead {
		return fmt.Errorf("%w: a frame of %d bytes behind %d, at most %d", errTooLarge, s.body, s.total, s.limit)
	}
	s.total += s.body + overhead
	if h[0]&flagMore == 0 {
		s.total = 0
	}
	s.header = s.header[:0]
	return nil
}
