package engine

import (
	"context"
	"errors"
)

var (
	// ErrUnroutable means that the peer is not connected, so nothing was sent.
	ErrUnroutable = errors.New("engine: the peer is not connected")
	// ErrTransportClosed means that the socket was closed.
	ErrTransportClosed = errors.New("engine: the socket was closed")
)

// Pattern is what a socket does.
type Pattern uint8

const (
	// Router receives from and sends to any number of peers.
	Router Pattern = iota + 1
	// Pull only receives.
	Pull
)

// Transport makes the sockets of a frontend. Package engine/zmq has the one that
// engines speak.
type Transport interface {
	// Bind makes a socket that peers connect to. Endpoints are written as ZeroMQ
	// does: "tcp://127.0.0.1:0", where port 0 is any free one, and "ipc:///path".
	// A peer that announces a message of more than limit bytes is disconnected; 0
	// is the transport's own limit. A limit is for a socket that strangers can reach:
	// when there are too many peers the one that sent nothing for longest makes room for
	// the next. Without a limit a peer that has sent something stays.
	Bind(p Pattern, endpoint string, limit int64) (Socket, error)
}

// Socket is a bound socket. Its methods may be called by any goroutine.
type Socket interface {
	// Endpoint is what peers connect to.
	Endpoint() string
	// Recv returns the next message. It fails with ctx's error or
	// ErrTransportClosed; after Close there are no more messages.
	Recv(ctx context.Context) (Message, error)
	// Send sends the frames to a peer, by the name that its messages have. It fails with
	// ErrUnroutable if the peer is not connected; with any other error nobody can tell
	// what arrived, and the peer is disconnected. The frames are not kept.
	Send(peer string, frames ...[]byte) error
	// Close ends the socket and its connections. Closing twice is fine.
	Close() error
}

// Message is what a peer sent, or that it has gone.
type Message struct {
	// Peer is the transport's name of the connection. No other connection of the
	// socket has or will have that name, whatever a peer calls itself.
	Peer string
	// Identity is what the peer calls itself. Anybody can claim any.
	Identity string
	// Frames belong to the receiver. There is at least one, unless Gone.
	Frames [][]byte
	// Gone reports that the peer's connection has ended, behind the last message that
	// came through it. Err is why, nil if the peer ended it.
	Gone bool
	Err  error
}
