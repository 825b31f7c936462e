package zmq

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// conn is the connection of one peer.
type conn struct {
	net.Conn
	wire  *zmq4.Conn
	in    *bufio.Reader
	sizes sizes

	sending sync.Mutex
	out     *bufio.Writer

	// Of the socket, and guarded by its mutex.
	since uint64 // the socket's clock when the peer connected, or sent something last
	spoke bool   // it has sent something
}

func newConn(raw net.Conn, o Transport) *conn {
	buf := int(min(64<<10, max(4<<10, o.MaxMessage/16)))
	return &conn{
		Conn: raw, sizes: sizes{limit: o.MaxMessage},
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

// Read is what the library reads through: it never sees a frame that is too
// large, for which it would allocate.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if err := c.sizes.pass(p[:n]); err != nil {
		return 0, err
	}
	return n, err
}

// Write is what the library writes through. Frames and their headers leave
// together, see send.
func (c *conn) Write(p []byte) (int, error) { return c.out.Write(p) }

// flushing is the connection during the greeting, where every write counts.
type flushing struct{ *conn }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.conn.Write(p)
	if err == nil && f.conn.wire == nil {
		err = f.out.Flush()
	}
	return n, err
}

// greet exchanges greetings and returns the identity of the peer.
func (c *conn) greet(kind zmq4.SocketType) (id string, err error) {
	defer recovered(&err)
	if err := c.SetDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return "", err
	}
	w, err := zmq4.Open(flushing{c}, null.Security(), kind, nil, true, nil)
	if err != nil {
		return "", err
	}
	c.wire = w
	return w.Peer.Meta["Identity"], c.SetDeadline(time.Time{})
}

// recv returns the frames of the next message.
func (c *conn) recv() (frames [][]byte, err error) {
	defer recovered(&err)
	m, err := c.wire.RecvMsg()
	if err != nil {
		return nil, err
	}
	return m.Frames, nil
}

// send writes a message at one go.
func (c *conn) send(frames [][]byte) (err error) {
	defer recovered(&err)
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.wire.SendMsg(zmq4.NewMsgFrom(frames...)); err != nil {
		return err
	}
	return c.out.Flush()
}

// recovered makes an error of a panic of the library, which some malformed
// greetings and frames cause.
func recovered(err *error) {
	if x := recover(); x != nil {
		*err = fmt.Errorf("zmq: malformed input: %v", x)
	}
}
