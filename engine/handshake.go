package engine

import (
	"context"
	"fmt"

	"github.com/ringcache/ringcache/serde"
)

// maxHandshake bounds the bytes of a message from a peer that may be anybody.
const maxHandshake = 64 << 10

// greeting is what became of the hello of a peer.
type greeting struct {
	waits    bool   // for the next session
	answered uint64 // the session that the peer was answered for; 0 is none
}

// peerName is a peer in the log.
func peerName(m Message) string { return fmt.Sprintf("%s (%x)", m.Peer, m.Identity) }

// readHandshake takes the messages of engines as long as the client lives. Anybody can
// connect, so odd ones are not all logged.
func (c *Client) readHandshake() {
	for {
		m, err := c.handshake.Recv(context.Background())
		if err != nil {
			return
		}
		if m.Gone {
			c.left(m.Peer)
			continue
		}
		h, err := serde.DecodeHandshake(m.Frames[0])
		switch {
		case err != nil:
			c.odd.Warn(c.o.Logger, "unreadable handshake", "peer", peerName(m), "error", err)
		case h.Status == serde.StatusHello:
			c.hello(m.Peer)
		case h.Status == serde.StatusReady: // which the engine's first message on its input socket proves
		default:
			c.odd.Warn(c.o.Logger, "unknown handshake", "peer", peerName(m), "status", h.Status)
		}
	}
}

// hello takes the hello of a peer that wants its addresses. Every peer gets them
// while an engine is awaited: which peer is the engine shows on the input socket, a
// file that not everyone can open. Each connection is answered once for each session,
// so that a peer that does not read can't hold up the handshake; an engine that
// was answered for a session that failed can say hello again.
func (c *Client) hello(peer string) {
	c.mu.Lock()
	g := c.peers[peer]
	s := c.awaiting()
	answered := s != nil && g.answered == s.number
	if !answered {
		g.waits = true
		c.peers[peer] = g
	}
	c.mu.Unlock()
	if !answered {
		c.welcomeAll()
	}
}

// left forgets a peer that has closed its connection. Since every connection ends,
// peers is bounded by the transport.
func (c *Client) left(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.peers, peer)
}

// awaiting returns the session that an engine can join, nil if there is none. mu is held.
func (c *Client) awaiting() *session {
	if c.awaited == nil || c.awaited.deadError() != nil {
		return nil
	}
	return c.awaited
}

// welcomeAll answers every peer that waits, if there is a session that awaits an engine.
func (c *Client) welcomeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.awaiting()
	if s == nil {
		return
	}
	for peer, g := range c.peers {
		if g.waits {
			c.peers[peer] = greeting{answered: s.number}
			c.wait.Go(func() { c.welcome(s, peer) }) // or a peer that does not read would hold up the others
		}
	}
}

// welcome sends an engine the addresses of a session.
func (c *Client) welcome(s *session, peer string) {
	b, err := serde.EncodeInit(&serde.Init{Inputs: []string{s.input.Endpoint()}, Outputs: []string{s.output.Endpoint()}})
	if err == nil {
		err = c.handshake.Send(peer, b)
	}
	if err != nil { // it went, and the next one may come
		c.odd.Warn(c.o.Logger, "an engine said hello and was gone", "error", err)
	}
}
