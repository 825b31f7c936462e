package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// session is the life with one engine process, from its handshake to its end.
// Sockets are its own, so that nothing of an engine reaches its successor.
//
// What holds: streams has the live requests by the ids of their children, and
// inFlight each of them once; both are only filled while dead is nil.
type session struct {
	c       *Client
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	input   Socket
	output  Socket
	process *process // nil if somebody else started the engine

	// The handshake, and what came of it: constant once the session runs.
	first chan []byte  // of one: its first message on the input socket
	peer  string       // its connection there
	ready *serde.Ready // with what Options say where it does not tell
	gen   *pycompat.Generation

	wait  sync.WaitGroup
	ended chan struct{} // closed when everything is given back
	gone  chan struct{} // closed by die
	fence chan struct{} // of one: something was aborted
	heard atomic.Int64  // when the engine said something last, or got something to say, in unix nanoseconds

	requests atomic.Uint64 // so far

	sent sentItems

	mu       sync.Mutex
	dead     *DeadError
	quitting bool // no request is sent any more
	streams  map[string]place
	inFlight map[*Stream]struct{}
	calls    map[uint64]chan *serde.UtilityOutput
	lastCall uint64
}

// place is where the outputs of an id belong.
type place struct {
	*Stream
	child int
}

func (c *Client) newSession(p *process) (*session, error) {
	in, out, err := c.sockets()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{
		c: c, ctx: ctx, cancel: cancel, input: in, output: out, process: p,
		first: make(chan []byte, 1),
		ended: make(chan struct{}), gone: make(chan struct{}), fence: make(chan struct{}, 1),
		streams: map[string]place{}, inFlight: map[*Stream]struct{}{}, calls: map[uint64]chan *serde.UtilityOutput{},
	}
	s.wait.Go(s.reap)
	s.wait.Go(s.readInput)
	s.wait.Go(s.readOutput)
	if p != nil {
		s.wait.Go(s.watchProcess)
	}
	go func() { // ends with the session, which Start and Close wait for
		s.wait.Wait()
		close(s.ended)
	}()
	return s, nil
}

// die ends the session; only the first cause counts. It does not wait.
func (s *session) die(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil {
		return
	}
	s.dead = &DeadError{Err: cause}
	close(s.gone)
}

// deadError is nil while the engine lives.
func (s *session) deadError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead == nil {
		return nil
	}
	return s.dead
}

// reap gives everything back when the engine has gone.
func (s *session) reap() {
	<-s.gone
	s.cancel()
	err := errors.Join(s.input.Close(), s.output.Close())
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	streams := s.requestsNow()
	s.c.o.Logger.Info("engine gone", "cause", dead.Err, "requests", len(streams), "sockets", err)
	for _, st := range streams {
		st.giveUp(dead, false) // its items stay until ResetReaders
	}
	if s.process != nil {
		s.process.end(s.c.o.Grace)
	}
}

func (s *session) watchProcess() {
	select {
	case <-s.process.exited:
		<-s.process.done
		s.die(&ExitError{s.process.err})
	case <-s.gone:
	}
}

// lastWords is how long an engine that has closed its input socket may take to
// say why on the other.
const lastWords = 100 * time.Millisecond

func disconnected(m Message) error {
	if m.Err == nil {
		return ErrDisconnected
	}
	return fmt.Errorf("%w (%w)", ErrDisconnected, m.Err)
}

// readInput takes the one message that comes from the engine on its input
// socket, and after that its end.
func (s *session) readInput() {
	met := false
	for {
		m, err := s.input.Recv(s.ctx)
		if err != nil {
			return
		}
		switch {
		case m.Gone && met && m.Peer == s.peer:
			select { // its last words may still be on their way
			case <-s.gone:
			case <-time.After(lastWords):
				s.die(disconnected(m))
			}
			return
		case !m.Gone && !met:
			met, s.peer = true, m.Peer
			s.first <- m.Frames[0]
		case !m.Gone:
			s.c.o.Logger.Warn("unexpected message on the input socket", "peer", fmt.Sprintf("%s (%x)", m.Peer, m.Identity))
		}
	}
}

// readOutput takes the engine's answers to where they belong. It never waits for
// anyone.
func (s *session) readOutput() {
	spoke := ""
	for {
		m, err := s.output.Recv(s.ctx)
		if err != nil {
			return
		}
		if m.Gone {
			if m.Peer != spoke {
				continue // somebody looked in
			}
			s.die(disconnected(m))
			return
		}
		spoke = m.Peer
		s.heard.Store(time.Now().UnixNano())
		f := serde.Frames(m.Frames)
		if serde.IsEngineDead(f) {
			s.die(ErrCoreDead)
			return
		}
		out, err := serde.DecodeOutputs(f, s.options())
		if err != nil {
			// Whose tokens are lost can't be told, so everyone's are in doubt.
			s.die(fmt.Errorf("its answer can't be read: %w", err))
			return
		}
		for _, e := range out.Unread {
			s.c.o.Logger.Warn("part of an answer can't be read", "error", e)
		}
		for i := range out.Outputs {
			s.dispatch(&out.Outputs[i])
		}
		if u := out.UtilityOutput; u != nil {
			s.answer(u)
		}
	}
}

func (s *session) dispatch(o *serde.EngineCoreOutput) {
	s.mu.Lock()
	p := s.streams[o.RequestID]
	s.mu.Unlock()
	if p.Stream != nil { // else it was aborted, or has finished
		p.push(p.child, o)
	}
}

// listen says that the engine has something to say from now on, if it had not. It
// is called with mu held.
func (s *session) listen() {
	if len(s.inFlight) == 0 && len(s.calls) == 0 {
		s.heard.Store(time.Now().UnixNano())
	}
}

// watch asks an engine that should have said something whether it is there.
func (s *session) watch(silence time.Duration) {
	if silence < 0 {
		return
	}
	t := time.NewTicker(max(silence/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-s.gone:
			return
		case <-t.C:
		}
		s.mu.Lock()
		busy := len(s.inFlight) > 0 || len(s.calls) > 0
		s.mu.Unlock()
		if !busy || time.Since(time.Unix(0, s.heard.Load())) < silence {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, silence)
		_, err := s.call(ctx, "is_sleeping")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			s.die(fmt.Errorf("%w: it was silent for %v and did not answer for %v", ErrDeaf, silence, silence))
			return
		}
	}
}
