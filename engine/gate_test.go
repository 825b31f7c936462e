package engine_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/zmq"
)

// The types of messages to an engine (EngineCoreRequestType in
// vllm/v1/engine/__init__.py).
const (
	typeAdd   = 0
	typeAbort = 1
)

// gate is a transport that holds messages back.
type gate struct {
	zmq.Transport
	mu    sync.Mutex
	kind  byte
	nth   int           // message of that kind is held
	at    chan struct{} // closed when it is
	leave chan struct{} // closed to let it pass
}

func newGate() *gate { return &gate{} }

type gatedSocket struct {
	engine.Socket
	g *gate
}

func (g *gate) Router(e string, n int64) (engine.Socket, error) {
	s, err := g.Transport.Router(e, n)
	return gatedSocket{s, g}, err
}

// hold holds the nth message of a kind from now on.
func (g *gate) hold(kind byte, nth int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kind, g.nth, g.at, g.leave = kind, nth, make(chan struct{}), make(chan struct{})
}

// waits returns when the message is held.
func (g *gate) waits(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	select {
	case <-g.at:
	case <-ctx.Done():
		t.Fatal("nothing was sent")
	}
}

// release lets the message pass, and all that follow.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.leave:
	default:
		close(g.leave)
	}
}

func (s gatedSocket) Send(peer string, frames ...[]byte) error {
	g := s.g
	g.mu.Lock()
	held := false
	if g.nth > 0 && len(frames) > 1 && frames[0][0] == g.kind {
		g.nth--
		held = g.nth == 0
	}
	at, leave := g.at, g.leave
	g.mu.Unlock()
	if held {
		close(at)
		<-leave
	}
	return s.Socket.Send(peer, frames...)
}
