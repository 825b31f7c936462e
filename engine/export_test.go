package engine

import (
	"slices"
	"time"

	"github.com/ringcache/ringcache/pycompat"
)

// The causes of an end, which the package does not export.
var (
	ErrClosed, ErrAborted                 = errClosed, errAborted
	ErrCoreDead, ErrDisconnected, ErrDeaf = errCoreDead, errDisconnected, errDeaf
)

// Generation is that of the engine.
func Generation(c *Client) *pycompat.Generation { return c.current().gen }

// Starting reports whether a Start, or Close, has its turn.
func Starting(c *Client) bool {
	if !c.starting.TryAcquire(1) {
		return true
	}
	c.starting.Release(1)
	return false
}

// Remembered is the number of items whose tokens are remembered.
func Remembered(c *Client) int {
	s, err := c.live()
	if err != nil {
		return 0
	}
	s.sent.mu.Lock()
	defer s.sent.mu.Unlock()
	return len(s.sent.items)
}

// SendRaw sends frames to the engine as they are.
func SendRaw(c *Client, frames ...string) error {
	s, err := c.live()
	if err != nil {
		return err
	}
	var b [][]byte
	for _, f := range frames {
		b = append(b, []byte(f))
	}
	return s.link.input.Send(s.link.peer, b...)
}

// Greeted reports whether an engine waits for its addresses.
func Greeted(c *Client) bool {
	c.handshake.mu.Lock()
	defer c.handshake.mu.Unlock()
	for _, g := range c.handshake.peers {
		if g.waits {
			return true
		}
	}
	return false
}

// Pid is the number of the engine's process.
func Pid(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.process.cmd.Process.Pid
}

// Idle makes the engine's last word be that long ago.
func Idle(c *Client, d time.Duration) { c.s.heard.Store(time.Now().Add(-d).UnixNano()) }

// Silent is how long ago it is.
func Silent(c *Client) time.Duration { return time.Since(time.Unix(0, c.s.heard.Load())) }

// Watch asks the engine whether it is there after so much silence, besides what the options ask for.
func Watch(c *Client, silence time.Duration) { c.s.wait.Go(func() { c.s.watch(silence) }) }

// Session is the session that runs.
func Session(c *Client) *session { return c.current() }

// NewSession is a session that awaits an engine that nobody has started.
func NewSession(c *Client) (*session, error) { return c.newSession(nil) }

var sessionStates = []string{
	sessionStarting: "starting", sessionRunning: "running", sessionAsleep: "asleep", sessionLeaving: "leaving", sessionGone: "gone", sessionOver: "over",
}

var sessionEvents = []string{
	sessionReady: "ready", sessionSlept: "slept", sessionWoke: "woke", sessionLeave: "leave", sessionEnd: "end", sessionGivenBack: "given back",
}

// State is the name of the session's state, Takes why the session takes no requests.
func (s *session) State() (state string, takes error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sessionStates[s.state], s.takesRequests()
}

// Fire has an event happen to the session in the way of the product.
func (s *session) Fire(event string, cause error) {
	switch event {
	case "ready":
		_ = s.run()
	case "end":
		s.end(cause)
	default:
		s.step(sessionEvent(slices.Index(sessionEvents, event)))
	}
}

// Hold keeps the session from being over.
func (s *session) Hold() (release func()) {
	s.wait.Add(1)
	return s.wait.Done
}

// Dead is why the session ended.
func (s *session) Dead() error { return s.deadError() }

// Gone and Over are closed when the session has got there.
func (s *session) Gone() <-chan struct{} { return s.ctx.Done() }
func (s *session) Over() <-chan struct{} { return s.over }

// Streams are the streams that are not settled.
func Streams(c *Client) []*Stream { return c.current().unsettled() }

var (
	streamStates = []string{streamOpen: "open", streamEnded: "ended", streamSettled: "settled"}
	childStates  = []string{childUnsent: "unsent", childRunning: "running", childMissed: "missed", childFinished: "finished"}
)

// State is the name of the stream's state.
func (st *Stream) State() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return streamStates[st.state]
}

// Child is the name of a child's state.
func (st *Stream) Child(i int) string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return childStates[st.children[i].state]
}

// Table is a table of states as text: the next state by state and event.
type Table map[string]map[string]string

// Tables are the tables of the program, by what they are about.
func Tables() map[string]Table {
	return map[string]Table{
		"Client":  text(clientTable, []string{clientOpen: "open", clientClosing: "closing", clientClosed: "closed"}, []string{clientClose: "close", clientEnded: "closed"}),
		"Session": text(sessionTable, sessionStates, sessionEvents),
		"Stream":  text(streamTable, streamStates, []string{streamEnd: "end", streamFree: "free"}),
		"Child": text(childTable, childStates, []string{
			childSend: "send", childOutput: "output", childLast: "last", childMiss: "miss", childStray: "stray",
		}),
	}
}

func text[S, E ~uint8](t table[S, E], states, events []string) Table {
	out := Table{}
	for s := 1; s < len(states); s++ {
		out[states[s]] = map[string]string{}
		for e := range events {
			next := S(s)
			if t.step(&next, E(e)) {
				out[states[s]][events[e]] = states[next]
			} else {
				out[states[s]][events[e]] = "-"
			}
		}
	}
	return out
}
