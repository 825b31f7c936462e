package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// maxHandshake bounds the bytes of a message from a peer that may be anybody.
const maxHandshake = 64 << 10

// handshake is the socket that engines connect to first, for as long as the client
// lives. Anybody can connect, so what peers send is bounded and not all logged.
// See docs/decisions.md, "The handshake is a TCP port, and peers are connections".
type handshake struct {
	socket Socket
	log    *slog.Logger
	odd    loglimit.Limit
	wait   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	awaited *session            // nil if no engine is
	peers   map[string]greeting // by connection
}

// greeting is what became of the hello of a peer.
type greeting struct {
	waits    bool   // for the next session
	answered uint64 // the session that the peer was answered for; 0 is none
}

func bindHandshake(o Options) (*handshake, error) {
	k, err := o.Transport.Router(o.Handshake, maxHandshake)
	if err != nil {
		return nil, err
	}
	h := &handshake{socket: k, log: o.Logger, peers: map[string]greeting{}}
	h.wait.Go(h.read)
	return h, nil
}

// close closes the socket, and returns when nothing uses it any more.
func (h *handshake) close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	err := h.socket.Close()
	h.wait.Wait()
	return err
}

// await welcomes peers to a session from now on, also those that came before; nil
// ends that.
func (h *handshake) await(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awaited = s
	h.welcomeAll()
}

// peerName is a peer in the log.
func peerName(m Message) string { return fmt.Sprintf("%s (%x)", m.Peer, m.Identity) }

func (h *handshake) read() {
	for {
		m, err := h.socket.Recv(context.Background())
		if err != nil {
			return
		}
		if m.Gone {
			h.left(m.Peer)
			continue
		}
		b, err := enginecore.DecodeHandshake(m.Frames[0])
		switch {
		case err != nil:
			h.odd.Warn(h.log, "unreadable handshake", "peer", peerName(m), "error", err)
		case b.Status == "HELLO":
			h.hello(m.Peer)
		case b.Status == "READY": // which the engine's first message on its input socket proves
		default:
			h.odd.Warn(h.log, "unknown handshake", "peer", peerName(m), "status", b.Status)
		}
	}
}

// hello takes the hello of a peer, which asks for its addresses. Every peer gets them
// while an engine is awaited: which peer is the engine shows on the input socket, a
// file that not everyone can open. Each connection is answered once for each session,
// so that a peer that does not read can't hold up the handshake; an engine that
// was answered for a session that failed can send hello again.
func (h *handshake) hello(peer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.peers[peer]
	if s := h.open(); s == nil || g.answered != s.number {
		g.waits = true
		h.peers[peer] = g
		h.welcomeAll()
	}
}

// left forgets a peer that has closed its connection. Since every connection ends,
// peers is bounded by the transport.
func (h *handshake) left(peer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, peer)
}

// open returns the session that an engine can join, nil if there is none. mu is held.
func (h *handshake) open() *session {
	if h.awaited == nil || h.closed || h.awaited.deadError() != nil {
		return nil
	}
	return h.awaited
}

// welcomeAll answers every peer that waits, if an engine is awaited. mu is held.
func (h *handshake) welcomeAll() {
	s := h.open()
	if s == nil {
		return
	}
	for peer, g := range h.peers {
		if g.waits {
			h.peers[peer] = greeting{answered: s.number}
			h.wait.Go(func() { h.welcome(s, peer) }) // or a peer that does not read would hold up the others
		}
	}
}

// welcome sends an engine the addresses of a session.
func (h *handshake) welcome(s *session, peer string) {
	b, err := enginecore.EncodeInit(s.link.addresses())
	if err == nil {
		err = h.socket.Send(peer, b)
	}
	if err != nil { // it went, and the next one may come
		h.odd.Warn(h.log, "a peer was gone before it was answered", "error", err)
	}
}
