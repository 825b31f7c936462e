package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// Conn is the connection of one peer. One goroutine at a time may receive; any may send.
type Conn struct {
	net.Conn

	in      *bufio.Reader
	sizes   sizes
	most    int // frames of a message, 0 is any
	large   func(bytes int) error
	head    [longHeader]byte
	frames  [][]byte // of the last Receive
	room    []byte   // for their bodies
	largest int      // message so far, in bytes, of those up to mostRoom

	sending sync.Mutex
	out     *bufio.Writer
	outHead [longHeader]byte
}

// Options bound what a peer may do.
type Options struct {
	// MaxMessage bounds the bytes of one message, of which each frame has 32 more. Receive fails when the peer
	// announces more.
	MaxMessage int64
	// MaxFrames bounds the frames of one message; 0 is as many as MaxMessage allows.
	MaxFrames int
	// Large, if not nil, is called before a frame is read with which a message has more than 64 KiB, and may wait. Its
	// error is that of Receive.
	Large func(bytes int) error
	// Buffer is the room for reading, and as much for writing, of a connection. 0 is up to 64 KiB, as
	// MaxMessage needs it.
	Buffer int
	// SendTimeout is how long the peer may take to take 64 KiB in.
	SendTimeout time.Duration
}

// New returns the connection of a peer, which has to greet first.
func New(raw net.Conn, o Options) *Conn {
	buf := o.Buffer
	if buf == 0 {
		buf = int(min(64<<10, max(4<<10, o.MaxMessage/16)))
	}
	return &Conn{
		Conn: raw, sizes: sizes{limit: o.MaxMessage}, most: o.MaxFrames, large: o.Large,
		in: bufio.NewReaderSize(raw, buf), out: bufio.NewWriterSize(patient{raw, o.SendTimeout}, buf),
	}
}

// patient writes as long as something is taken in.
type patient struct {
	net.Conn
	timeout time.Duration
}

func (w patient) Write(p []byte) (n int, err error) {
	const piece = 64 << 10
	for len(p) > 0 && err == nil {
		if err := w.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return n, err
		}
		var m int
		m, err = w.Conn.Write(p[:min(piece, len(p))])
		n, p = n+m, p[m:]
	}
	return n, err
}

// Read is what the library reads through during the greeting: it never sees a frame
// that is too large, for which it would allocate.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if err := c.sizes.pass(p[:n]); err != nil {
		return 0, err
	}
	return n, err
}

// Write is what the library writes through during the greeting, where every write counts.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	if err == nil {
		err = c.out.Flush()
	}
	return n, err
}

// Greet exchanges greetings as a socket of a kind, and returns the identity that the peer claims.
func (c *Conn) Greet(kind zmq4.SocketType, timeout time.Duration) (identity string, err error) {
	defer recovered(&err)
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	w, err := zmq4.Open(c, null.Security(), kind, nil, true, nil)
	if err != nil {
		return "", err
	}
	return w.Peer.Meta["Identity"], c.SetDeadline(time.Time{})
}

// Receive returns the frames of the next message, which are valid until the next call,
// unless Keep is called before. A message that fits into room takes no memory. The error is
// io.EOF of a peer that has gone in front of a message.
func (c *Conn) Receive() (frames [][]byte, err error) {
	if len(c.room) < c.largest {
		c.room = make([]byte, 1<<bits.Len(uint(c.largest-1)))
	}
	frames, room, total := c.frames[:0], c.room, 0
	for more := true; more; {
		if len(frames) == c.most && c.most > 0 {
			return nil, fmt.Errorf("%w: more than %d frames", errTooLarge, c.most)
		}
		var size int
		if size, more, err = c.header(len(frames) > 0); err != nil {
			return nil, err
		}
		if total+size > mostRoom && c.large != nil {
			if err := c.large(size); err != nil {
				return nil, err
			}
		}
		body := []byte{} // a frame is never nil
		if size <= len(room) && size > 0 {
			body, room = room[:size:size], room[size:]
		}
		if body, err = c.body(body, size); err != nil {
			return nil, torn(err)
		}
		c.sizes.body = 0
		frames, total = append(frames, body), total+size
	}
	c.frames = nil
	if total <= mostRoom && len(frames) <= mostFrames {
		c.largest, c.frames = max(c.largest, total), frames
	}
	return frames, nil
}

// body reads the body of a frame, into b if that has room. What a peer only announces takes no memory: room for a
// large body grows with what has come.
func (c *Conn) body(b []byte, size int) ([]byte, error) {
	for have := 0; have < size; {
		if have == len(b) {
			b = append(make([]byte, 0, min(size, max(mostTrusted, 2*have))), b...)
			b = b[:cap(b)]
		}
		n, err := io.ReadFull(c.in, b[have:])
		if err != nil {
			return nil, err
		}
		have += n
	}
	return b, nil
}

// What is kept for the next message is bounded: it is one of a few KiB, as the steps of
// an engine are.
const (
	mostRoom   = 64 << 10
	mostFrames = 64
)

// mostTrusted is how many bytes of a frame get room before any of them has come.
const mostTrusted = 1 << 20

// Keep leaves the frames of the last Receive to whoever has them.
func (c *Conn) Keep() { c.frames, c.room = nil, nil }

// header reads the header of a frame, and reports whether another one follows. Only in
// front of a message may the peer go.
func (c *Conn) header(within bool) (size int, more bool, err error) {
	h := c.head[:shortHeader]
	if _, err := io.ReadFull(c.in, h); err != nil {
		if within {
			err = torn(err)
		}
		return 0, false, err
	}
	if h[0]&flagLong != 0 {
		h = c.head[:longHeader]
		if _, err := io.ReadFull(c.in, h[shortHeader:]); err != nil {
			return 0, false, torn(err)
		}
	}
	if err := c.sizes.pass(h); err != nil {
		return 0, false, err
	}
	return int(c.sizes.body), h[0]&flagMore != 0, nil
}

// torn is the error of a peer that has gone in the midst of a message.
func torn(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Send writes a message at one go. After an error half of a message may be on its way: close the connection.
func (c *Conn) Send(frames [][]byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	for i, f := range frames {
		h := c.outHead[:shortHeader]
		h[0] = 0
		if len(f) <= math.MaxUint8 {
			h[1] = byte(len(f))
		} else {
			h = c.outHead[:longHeader]
			h[0] = flagLong
			binary.BigEndian.PutUint64(h[1:], uint64(len(f)))
		}
		if i < len(frames)-1 {
			h[0] |= flagMore
		}
		if _, err := c.out.Write(h); err != nil {
			return err
		}
		if _, err := c.out.Write(f); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

// recovered makes an error of a panic of the library, which some malformed
// greetings cause.
func recovered(err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("zmtp: malformed input: %v", x)
	}
}
