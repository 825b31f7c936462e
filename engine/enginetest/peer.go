package enginetest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// Peer is one connection to a socket of a frontend, as an engine has it. It has no
// goroutine: what it waits for ends with Close.
//
// The sockets of the library are not used, since they connect again behind one's
// back and leave goroutines behind (v0.17.0): one that waits for a greeting never ends.
type Peer struct {
	conn    net.Conn
	wire    *zmq4.Conn
	sending sync.Mutex
}

// Dealer connects to an endpoint as a DEALER socket of that identity, which may be
// empty. The end of ctx ends the attempt, not the connection.
func Dealer(ctx context.Context, endpoint, identity string) (*Peer, error) {
	return dial(ctx, endpoint, zmq4.Dealer, identity)
}

// Push connects to an endpoint as a PUSH socket does.
func Push(ctx context.Context, endpoint string) (*Peer, error) {
	return dial(ctx, endpoint, zmq4.Push, "")
}

func dial(ctx context.Context, endpoint string, kind zmq4.SocketType, identity string) (*Peer, error) {
	scheme, addr, _ := strings.Cut(endpoint, "://")
	network, ok := map[string]string{"tcp": "tcp", "ipc": "unix"}[scheme]
	if !ok {
		return nil, fmt.Errorf("enginetest: endpoint %q is neither tcp:// nor ipc://", endpoint)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("enginetest: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	wire, err := zmq4.Open(&buffered{conn, bufio.NewReader(conn)}, null.Security(), kind,
		zmq4.SocketIdentity(identity), false, nil)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: no greeting from %s: %w", errTurnedAway, endpoint, err)
	}
	return &Peer{conn: conn, wire: wire}, nil
}

// buffered spares a system call for each part of a frame.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// Send sends a message. It waits while the frontend does not read.
func (p *Peer) Send(frames ...[]byte) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	return p.wire.SendMsg(zmq4.NewMsgFrom(frames...))
}

// Recv returns the frames of the next message. It has one caller at a time.
func (p *Peer) Recv() ([][]byte, error) {
	m, err := p.wire.RecvMsg()
	return m.Frames, err
}

// Close ends the connection, and what waits for it. Closing twice is fine.
func (p *Peer) Close() error {
	_ = p.conn.Close() // all that can be wrong is that it is closed
	return nil
}
