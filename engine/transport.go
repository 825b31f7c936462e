package engine

import "context"

// Transport makes the sockets of a frontend, which peers connect to. Package
// engine/zmq has the one that engines speak. Endpoints are written as ZeroMQ does:
// "tcp://127.0.0.1:0", where port 0 is any free one, and "ipc:///path".
type Transport interface {
	// Router binds a socket that receives from and sends to any number of peers. A
	// peer that announces a message of more than limit bytes is disconnected; 0
	// is the transport's own limit. A limit is for a socket that anybody can reach:
	// when there are too many peers the one that sent nothing for longest makes room for
	// the next. Without a limit a peer that has sent something stays.
	Router(endpoint string, limit int64) (Socket, error)
	// Pull binds a socket that only receives.
	Pull(endpoint string) (Socket, error)
}

// Socket is a bound socket. Its methods may be called by any goroutine.
type Socket interface {
	// Endpoint is what peers connect to.
	Endpoint() string
	// Recv returns the next message. It fails with ctx's error or
	// fs.ErrClosed; after Close there are no more messages.
	Recv(ctx context.Context) (Message, error)
	// Send sends the frames to a peer, by the name that its messages have. After an
	// error nobody can tell what arrived, and the peer is not connected any more. The
	// frames are not kept.
	Send(peer string, frames ...[]byte) error
	// Close ends the socket and its connections. Closing twice is fine.
	Close() error
}

// Receiver is what a Socket may be besides: then its messages don't go through another goroutine.
type Receiver interface {
	// Receive passes each message to take, one at a time, until the socket is closed, and
	// returns fs.ErrClosed then, when take has returned. It is called once, instead of Recv.
	// take may be called by any goroutine. It must not wait, and must not call
	// Close; the frames are valid until it returns.
	Receive(take func(Message)) error
}

// Message is what a peer sent, or that it has gone.
type Message struct {
	// Peer is the transport's name of the connection. No other connection of the
	// socket has or will have that name, whatever a peer calls itself.
	Peer string
	// Identity is what the peer calls itself. Anybody can claim any.
	Identity string
	// Frames belong to the receiver (see [Receiver] for how long). There is at least one,
	// unless Gone.
	Frames [][]byte
	// Gone reports that the peer's connection has ended, behind the last message that
	// came through it. Err is why, nil if the peer ended it.
	Gone bool
	Err  error
}
