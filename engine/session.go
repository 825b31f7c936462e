package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// session is the life with one engine process, from its handshake to its end; its
// states are in state.go. Sockets belong to one session, so that nothing of an engine
// reaches its successor.
type session struct {
	c       *Client
	number  uint64          // among the sessions of the client
	ctx     context.Context // done when the session is gone
	cancel  context.CancelFunc
	process *process // nil if somebody else started the engine
	link    *link

	// What came of the handshake; constant once the session runs.
	ready *enginecore.Ready // completed from the options
	gen   *pycompat.Generation
	codec atomic.Pointer[enginecore.Codec] // of gen, and before gen is known of what Options expect

	wait  sync.WaitGroup
	over  chan struct{} // closed when everything is given back
	fence chan struct{} // of one: a request was aborted
	heard atomic.Int64  // when the engine answered last, or got something to answer, in unix nanoseconds
	sent  sentItems

	mu       sync.Mutex
	state    sessionState
	dead     error // why the session ended, an ErrDead
	requests requests
	calls    calls
}

func (c *Client) newSession(p *process) (*session, error) {
	c.mu.Lock()
	c.sessions++
	number := c.sessions
	c.mu.Unlock()
	codec, err := enginecore.New(enginecore.Options{Generation: c.o.Generation})
	if err != nil {
		return nil, err
	}
	l, err := c.bind(number)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{
		c: c, number: number, ctx: ctx, cancel: cancel, link: l, process: p, state: sessionStarting,
		over: make(chan struct{}), fence: make(chan struct{}, 1),
		requests: requests{streams: map[*Stream]struct{}{}, children: map[string]place{}},
		calls:    calls{waiting: map[uint64]chan *enginecore.Answer{}},
	}
	s.codec.Store(codec)
	s.wait.Go(s.reap)
	s.wait.Go(s.readInput)
	s.wait.Go(s.readOutput)
	if p != nil {
		s.wait.Go(s.watchProcess)
	}
	go func() { // ends with the session, which Start and Close wait for
		s.wait.Wait()
		s.step(sessionGivenBack)
		close(s.over)
	}()
	return s, nil
}

// step applies an event other than the end.
func (s *session) step(e sessionEvent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sessionTable.step(&s.state, e)
}

// run begins the session's use: the engine is ready, and is the right one.
func (s *session) run() error {
	s.heard.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sessionTable.step(&s.state, sessionReady) {
		return s.takesRequests()
	}
	s.wait.Go(func() { s.watch(s.c.o.Silence) })
	s.wait.Go(s.fences)
	return nil
}

// takesRequests returns why no request can be sent, nil if one can. mu is held.
func (s *session) takesRequests() error {
	switch s.state {
	case sessionStarting:
		return ErrNotRunning
	case sessionRunning:
		return nil
	case sessionAsleep:
		return ErrAsleep
	case sessionLeaving:
		return errClosed
	}
	return s.dead
}

// end ends the session; only the first cause counts. It does not wait: reap gives
// everything back.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sessionTable.step(&s.state, sessionEnd) {
		s.dead = fmt.Errorf("%w: %w", ErrDead, notEOF(cause))
		s.cancel()
	}
}

// deadError returns why the session ended, nil before its end.
func (s *session) deadError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// reap gives everything back when the session has ended.
func (s *session) reap() {
	<-s.ctx.Done()
	err := s.link.close()
	dead, streams := s.deadError(), s.unsettled()
	s.c.o.Logger.Info("engine gone", "cause", dead, "requests", len(streams), "sockets", err)
	for _, st := range streams {
		st.end(dead) // items stay until ResetReaders
	}
	if s.process != nil {
		s.process.end(s.c.o.Grace)
	}
}

// close ends a session on behalf of Client.Close, with what is still under way, and
// returns when everything is given back, or Options.Grace has passed.
func (s *session) close() error {
	if s.process == nil && s.step(sessionLeave) { // the engine runs on: nothing of ours may go on there
		for _, st := range s.unsettled() {
			st.end(errClosed)
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.c.o.Grace)
		_ = s.c.settled(ctx)
		s.passFence(ctx)
		cancel()
	}
	s.end(errClosed)
	<-s.over
	ctx, cancel := context.WithTimeout(context.Background(), s.c.o.Grace)
	defer cancel()
	var err error
	if s.c.settled(ctx) != nil {
		err = fmt.Errorf("engine: %d requests were not given back within %v (Options.Grace): their producers or sends go on", s.c.Stats().InFlight, s.c.o.Grace)
	}
	if s.process != nil { // it has ended, with all readers
		err = errors.Join(err, s.c.resetReaders(0))
	}
	return err
}

// send sends one message. If it does not arrive for certain the engine is given
// up: it may have got half of it.
func (s *session) send(frames [][]byte) error {
	if err := s.link.send(frames); err != nil {
		s.end(fmt.Errorf("%w (%w)", errDisconnected, err))
		return s.deadError()
	}
	return nil
}

// sendAbort has the engine stop; there is no answer to that.
func (s *session) sendAbort(ids []string) {
	frames, err := enginecore.EncodeAbort(ids)
	if err == nil {
		err = s.send(frames)
	}
	if err != nil {
		s.c.o.Logger.Debug("abort not sent", "error", err)
	}
}
