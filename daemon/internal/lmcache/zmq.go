package lmcache

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/ringcache/ringcache/internal/accept"
	"github.com/ringcache/ringcache/internal/zmtp"
)

// ZMQ serves the protocol by ZeroMQ. A client tells no identity: it is its connection.
//
// See docs/decisions.md, "A client of LMCache by ZMQ is its connection".
type ZMQ struct {
	s     *Server
	conns *conns
	wait  sync.WaitGroup  // for connections
	ctx   context.Context //nolint:containedctx // of all calls
	end   context.CancelFunc

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	stopping  chan struct{} // closed by Shutdown
}

// sendTimeout is how long a client may take to take 64 KiB in.
const sendTimeout = 30 * time.Second

// maxFrames bounds the frames of a message: no operation has as many arguments.
const maxFrames = 16

// NewZMQ returns what serves s by ZeroMQ.
func NewZMQ(s *Server) *ZMQ {
	z := &ZMQ{
		s: s, conns: &conns{open: map[net.Conn]struct{}{}},
		listeners: map[net.Listener]struct{}{}, stopping: make(chan struct{}),
	}
	z.ctx, z.end = context.WithCancel(context.Background())
	return z
}

// stops reports whether Shutdown was called.
func (z *ZMQ) stops() bool {
	select {
	case <-z.stopping:
		return true
	default:
		return false
	}
}

// Serve answers the clients of a listener until Shutdown, which closes it; then it returns nil.
func (z *ZMQ) Serve(l net.Listener) error {
	z.mu.Lock()
	if z.stops() {
		z.mu.Unlock()
		return l.Close()
	}
	z.listeners[l] = struct{}{}
	z.wait.Add(1)
	z.mu.Unlock()
	defer z.wait.Done()
	take := func(raw net.Conn) { z.wait.Go(func() { z.serve(raw) }) }
	return accept.Loop(l, z.stops, take, func(err error) { z.s.refused("connect", err) })
}

// Shutdown lets calls that are under way end, until ctx ends, and closes listeners and connections.
func (z *ZMQ) Shutdown(ctx context.Context) {
	z.s.events.close()
	z.mu.Lock()
	if !z.stops() {
		close(z.stopping)
	}
	for l := range z.listeners {
		_ = l.Close() // Serve notices
	}
	z.mu.Unlock()
	z.conns.each(func(c net.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // what fails is closed
	stop := context.AfterFunc(ctx, func() {
		z.end()
		z.conns.close()
	})
	defer stop()
	z.wait.Wait()
	z.end()
}

// serve greets a client, and answers its calls until it goes: one after the other, as a client has them handled
// anyway, but for those that wait.
func (z *ZMQ) serve(raw net.Conn) {
	defer func() { _ = raw.Close() }()
	conn, err := z.s.identify(raw)
	if err != nil {
		return
	}
	defer z.s.closed(conn)
	if !z.conns.add(raw) {
		return
	}
	defer z.conns.remove(raw)
	ctx, cancel := context.WithCancel(z.ctx)
	defer cancel()
	by := caller{ctx: ctx, conn: conn, id: newID()}
	by.room = newRoom(z.s, by) // of one call at a time: those that wait have small messages
	defer by.room.release()
	c := zmtp.New(raw, zmtp.Options{MaxMessage: maxMessage, MaxFrames: maxFrames, Large: by.room.more, SendTimeout: sendTimeout})
	if _, err := c.Greet(zmq4.Router, handshake); err != nil {
		z.s.refused("connect", err)
		return
	}
	p := newZMQPeer(z, c, by)
	for err == nil && !z.stops() { // Greet has ended a deadline that Shutdown may have set
		var frames [][]byte
		if frames, err = c.Receive(); err == nil {
			err = p.take(frames)
		}
		by.room.release()
	}
	if !z.stops() {
		cancel()
		if gone := (*net.OpError)(nil); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &gone) {
			z.s.refused("receive", err)
		}
	}
	p.calls.Wait()
}

// newID is the ID of a client.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// zmqPeer is a client that has greeted.
type zmqPeer struct {
	z       *ZMQ
	c       *zmtp.Conn
	by      caller
	waiting chan struct{} // a call that waits has a place in it
	sending chan struct{} // a subscription has a place in it until its last answer is sent
	calls   sync.WaitGroup

	mu      sync.Mutex
	streams map[string]*zmqStream // by the number of the call
}

func newZMQPeer(z *ZMQ, c *zmtp.Conn, by caller) *zmqPeer {
	return &zmqPeer{
		z: z, c: c, by: by, waiting: make(chan struct{}, maxCalls), sending: make(chan struct{}, maxEnding),
		streams: map[string]*zmqStream{},
	}
}

var (
	// errMalformed reports a message that can't be answered.
	errMalformed = errors.New("lmcache: a message without an operation")
	errStreams   = fmt.Errorf("lmcache: a connection has at most %d subscriptions", maxStreams)
	// errLarge reports a call that would keep its message when that has no room of the budget any more.
	errLarge = fmt.Errorf("lmcache: a call that waits, or subscribes, has more than %d bytes, which is too large: %w",
		smallMessage, fs.ErrInvalid)
)

// take answers a call. An error ends the connection.
func (p *zmqPeer) take(frames [][]byte) error {
	if len(frames) < 2 {
		return errMalformed
	}
	number, op := frames[0], frames[1]
	if len(op) == 0 {
		p.control(number, frames[2:])
		return nil
	}
	name, err := readOperation(op)
	found, ok := operations[name]
	if err == nil && (name == subscription || ok && methods[found.method].waits) && bytesOf(frames) > smallMessage {
		err = errLarge
	}
	if err == nil && name == subscription {
		if err := p.subscribe(number, op, frames[2:]); err != nil {
			p.z.s.refused(subscription, err)
			return p.c.Send([][]byte{number, appendError(nil, err)})
		}
		return nil
	}
	if err == nil && !ok {
		err = fmt.Errorf("lmcache: operation %.40q is not served: %w", name, fs.ErrInvalid)
	}
	if err != nil {
		p.z.s.refused("receive", err)
		return p.c.Send([][]byte{number, appendError(nil, err)})
	}
	q, release, err := readCall(found, frames[2:])
	if err != nil {
		p.z.s.refused(found.method, err)
		return p.c.Send([][]byte{number, appendError(nil, err)})
	}
	if release != unknown {
		p.by.release = release // not every call tells
	}
	by, m := p.by, methods[found.method]
	answer := func(number, op []byte) error {
		a, err := p.z.s.answer(found.method, m, by, q)
		if err != nil {
			return p.c.Send([][]byte{number, appendError(nil, err)})
		}
		if b := appendAnswer(nil, a, release); len(b) > 0 {
			return p.c.Send([][]byte{number, op, b})
		}
		return p.c.Send([][]byte{number, op})
	}
	if !m.waits {
		return answer(number, op)
	}
	number, op = slices.Clone(number), slices.Clone(op) // the next message may have their memory
	select {
	case p.waiting <- struct{}{}:
	case <-p.by.ctx.Done():
		return p.by.ctx.Err()
	}
	p.calls.Go(func() {
		defer func() { <-p.waiting }()
		if answer(number, op) != nil {
			_ = p.c.Close() // half an answer may be on its way
		}
	})
	return nil
}

// bytesOf returns the bytes of a message.
func bytesOf(frames [][]byte) (n int) {
	for _, f := range frames {
		n += len(f)
	}
	return n
}
