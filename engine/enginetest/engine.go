// Package enginetest is a stand-in for a vLLM EngineCore with its workers, for
// tests of frontends: it speaks the same messages, reads the same segment and
// keeps the same mirror, but its tokens are a hash of what it was given. It dies of
// handles that its workers can't use and of messages that it can't decode, as a
// real engine does; it does not look at tokens, parameters and places.
package enginetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Options configure a stand-in.
type Options struct {
	// Handshake is the frontend's endpoint.
	Handshake string
	// Generation is that of the engine, the newest if nil.
	Generation *pycompat.Generation
	// Workers is the number of readers; 0 is 1.
	Workers int
	// Segment, Dir and RingSize are those of the shared memory; without a Segment
	// there is none.
	Segment, Dir string
	RingSize     int
	// Mirror is the capacity of the LRU cache; 0 for none.
	Mirror float64
	// MaxNumSeqs is how many requests run at once; 0 is 1.
	MaxNumSeqs int
	// MaxModelLen is how many tokens a request has at most, with its prompt; 0 is 4
	// million.
	MaxModelLen int
	// Ready changes the ready map before it is sent.
	Ready func(*enginecore.Ready)
	// Identity of the sockets; empty is that of rank 0.
	Identity string
}

// Engine is a stand-in that runs.
type Engine struct {
	o       Options
	wire    *wire.Codec
	sockets sockets
	workers []*objstore.Reader
	mirror  *upstream.ReceiverCache[*serde.Item]
	wait    sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	queue   []work
	running []*request
	aborted map[string]bool
	ended   bool
	fatal   error
	orders  orders
	arrived arrived
}

// sockets are the connections to the frontend, nil before they are made.
type sockets struct{ handshake, in, out *Peer }

func (s *sockets) close() {
	for _, p := range []*Peer{s.handshake, s.in, s.out} {
		if p != nil {
			p.Close()
		}
	}
}

// orders are what a test has the engine do.
type orders struct {
	held   bool            // the loop waits
	silent bool            // nothing is answered
	refuse map[string]bool // these methods fail
}

// arrived is what the frontend sent, in its order.
type arrived struct {
	requests []*wire.Request
	calls    []string // their methods
	aborts   []string // ids
}

// work is what the loop does next: a request, or a call.
type work struct {
	add  *request
	call *enginecore.Call
}

// request is one that runs.
type request struct {
	core  *wire.Request
	state uint64
	made  int
	max   int
	read  bool // its items were
}

// Kill ends the engine as SIGKILL does: nothing more is sent. Killing twice is
// fine.
func (e *Engine) Kill() {
	e.sockets.close() // first: who holds mu may wait for the frontend
	e.mu.Lock()
	e.ended = true
	e.changed.Broadcast()
	e.mu.Unlock()
	e.wait.Wait()
	for _, r := range e.workers {
		_ = r.Close()
	}
	e.workers = nil
}

// Die reports that the engine died, and sends nothing after that.
func (e *Engine) Die() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.die(errors.New("enginetest: Die was called"))
}

// die is called with mu held.
func (e *Engine) die(err error) {
	if e.fatal == nil {
		e.fatal = err
		_ = e.sockets.out.Send([]byte(wire.EngineDead))
	}
	e.ended = true
	e.changed.Broadcast()
}

// Fatal returns what ended the engine from within, nil if nothing did.
func (e *Engine) Fatal() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fatal
}

// Hold keeps the engine's loop from running, as a long step does; messages are
// received all the same.
func (e *Engine) Hold(held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.orders.held = held
	e.changed.Broadcast()
}

// Deafen has the engine answer nothing any more, although it stays connected.
func (e *Engine) Deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.orders.silent = true
}

// Forget empties the mirror behind the frontend's back.
func (e *Engine) Forget() { e.mirror.Clear() }

// Requests returns the requests that arrived, in their order. They are views of
// frames that belong to nobody else.
func (e *Engine) Requests() []*wire.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*wire.Request{}, e.arrived.requests...)
}

// Calls returns the methods that were called, in their order.
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.arrived.calls...)
}

// Aborts returns the ids that were aborted, in their order.
func (e *Engine) Aborts() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.arrived.aborts...)
}

// Refuse has the engine answer calls of a method with a failure.
func (e *Engine) Refuse(method string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.orders.refuse == nil {
		e.orders.refuse = map[string]bool{}
	}
	e.orders.refuse[method] = true
}

// Wait waits until cond is true, or ctx ends.
func Wait(ctx context.Context, cond func() bool) error {
	for !cond() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
