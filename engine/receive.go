package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// lastWords is how long an engine that has closed its input socket may take to
// report why on the other one.
const lastWords = 100 * time.Millisecond

func disconnected(m Message) error {
	if m.Err == nil {
		return errDisconnected
	}
	return fmt.Errorf("%w (%w)", errDisconnected, m.Err)
}

// readInput takes the one message that the engine sends on its input socket, and
// after that the end of the connection.
func (s *session) readInput() {
	met := false
	var odd loglimit.Limit
	for {
		m, err := s.link.input.Recv(s.ctx)
		if err != nil {
			return
		}
		switch {
		case m.Gone && met && m.Peer == s.link.peer:
			select { // its last words may still be on their way
			case <-s.ctx.Done():
			case <-time.After(lastWords):
				s.end(disconnected(m))
			}
			return
		case !m.Gone && !met:
			met, s.link.peer = true, m.Peer
			s.link.first <- m.Frames[0]
		case !m.Gone:
			odd.Warn(s.c.o.Logger, "unexpected message on the input socket", "peer", peerName(m))
		}
	}
}

// readOutput takes the engine's answers to where they belong, until the session ends.
func (s *session) readOutput() {
	in := answers{session: s}
	if r, ok := s.link.output.(Receiver); ok {
		_ = r.Receive(in.take) // the socket is closed
		return
	}
	for !in.over {
		m, err := s.link.output.Recv(s.ctx)
		if err != nil {
			return
		}
		in.take(m)
	}
}

// answers are the messages on the output socket.
type answers struct {
	*session
	peer   string // the one that sends them
	over   bool   // the session has ended
	codec  *enginecore.Codec
	reader *enginecore.OutputsReader // of codec
}

// read decodes a message. What is returned is valid until the next one.
func (s *answers) read(frames [][]byte) (*enginecore.Outputs, error) {
	if c := s.session.codec.Load(); c != s.codec {
		s.codec, s.reader = c, c.NewOutputsReader()
	}
	return s.reader.Read(frames)
}

// take takes a message. It never waits for anyone: neither for a reader, nor for a
// producer, nor for a send.
func (s *answers) take(m Message) {
	switch {
	case s.over:
	case m.Gone && m.Peer != s.peer: // somebody looked in
	case m.Gone:
		s.fail(disconnected(m))
	default:
		s.peer = m.Peer
		s.heard.Store(time.Now().UnixNano())
		out, err := s.read(m.Frames)
		switch {
		case errors.Is(err, enginecore.ErrEngineDead):
			s.fail(errCoreDead)
		case err != nil:
			// Nobody can tell whose tokens are lost, so everyone's are in doubt.
			s.fail(fmt.Errorf("its answer can't be read: %w", err))
		default:
			s.pass(out)
		}
	}
}

func (s *answers) fail(cause error) {
	s.over = true
	s.end(cause)
}

// pass passes on what a message contains.
func (s *session) pass(out *enginecore.Outputs) {
	for _, e := range out.Unread {
		s.c.o.Logger.Warn("part of an answer can't be read", "error", e)
	}
	for i := range out.Outputs {
		s.dispatch(&out.Outputs[i])
	}
	if u := out.Answer; u != nil {
		s.answer(u)
	}
	clear(out.Outputs) // until the next message they would keep this one, which may be large
	out.Answer = nil
}

func (s *session) dispatch(o *enginecore.Output) {
	s.mu.Lock()
	p := s.requests.children[o.RequestID]
	s.mu.Unlock()
	if p.Stream != nil { // else it is settled
		p.push(p.child, o)
	}
}

// expectAnswer begins the engine's silence now, if the engine had nothing to answer.
// mu is held.
func (s *session) expectAnswer() {
	if !s.busy() {
		s.heard.Store(time.Now().UnixNano())
	}
}

// busy reports whether the engine has something to answer. mu is held.
func (s *session) busy() bool { return len(s.requests.streams) > 0 || len(s.calls.waiting) > 0 }

// watch asks an engine that should have answered something whether it is there.
func (s *session) watch(silence time.Duration) {
	if silence < 0 {
		return
	}
	t := time.NewTicker(max(silence/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		s.mu.Lock()
		busy := s.busy()
		s.mu.Unlock()
		if !busy || time.Since(time.Unix(0, s.heard.Load())) < silence {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, silence)
		_, err := s.call(ctx, "is_sleeping")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			s.end(fmt.Errorf("%w: it was silent for %v and did not answer for %v", errDeaf, silence, silence))
			return
		}
	}
}

// watchProcess ends the session with the engine's process.
func (s *session) watchProcess() {
	select {
	case <-s.process.exited:
		<-s.process.done
		s.end(exited(s.process.err))
	case <-s.ctx.Done():
	}
}
