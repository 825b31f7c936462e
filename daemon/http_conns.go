package daemon

import (
	"net"
	"sync"
)

// maxHTTP is the most connections of HTTP at a time, where there are descriptors for them.
const maxHTTP = 64

// connKey is the key of a *boundedConn in the context of its requests.
type connKey struct{}

// bounded is a listener with a most of connections. It accepts every connection at once, and closes another one if there are too many: of the
// address that has the most, the one that has kept the daemon waiting for a request for longest. So whoever sends a request as soon as it is
// connected is answered, whatever others hold.
type bounded struct {
	net.Listener
	most int

	mu    sync.Mutex // guards what follows
	turn  uint64     // counts beginnings
	conns map[*boundedConn]struct{}
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, most: most, conns: map[*boundedConn]struct{}{}}
}

// boundedConn is a connection of a bounded. Fields are guarded by its lock.
type boundedConn struct {
	net.Conn
	l     *bounded
	peer  string
	since uint64 // turn of its last beginning: when it was accepted, or its last request came or was answered
	busy  bool   // a request is being answered
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{Conn: conn, l: l, peer: conn.RemoteAddr().String()}
	if host, _, err := net.SplitHostPort(c.peer); err == nil {
		c.peer = host
	}
	if worst := l.add(c); worst != nil {
		_ = worst.Conn.Close() // its server notices, and closes it again
	}
	return c, nil
}

// add adds a connection, and removes and returns the one that has to go for it, if any.
func (l *bounded) add(c *boundedConn) (worst *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.most {
		worst = l.worst()
		delete(l.conns, worst)
	}
	l.conns[c] = struct{}{}
	l.touch(c, false)
	return worst
}

// worst returns the connection that goes first.
func (l *bounded) worst() (worst *boundedConn) {
	perPeer := map[string]int{}
	for c := range l.conns {
		perPeer[c.peer]++
	}
	worse := func(a, b *boundedConn) bool {
		switch {
		case perPeer[a.peer] != perPeer[b.peer]:
			return perPeer[a.peer] > perPeer[b.peer]
		case a.busy != b.busy:
			return b.busy
		}
		return a.since < b.since
	}
	for c := range l.conns {
		if worst == nil || worse(c, worst) {
			worst = c
		}
	}
	return worst
}

// touch notes that a connection begins something. The caller has the lock.
func (l *bounded) touch(c *boundedConn, busy bool) {
	l.turn++
	c.since, c.busy = l.turn, busy
}

// begin and end are around a request.
func (c *boundedConn) begin() { c.set(true) }
func (c *boundedConn) end()   { c.set(false) }

func (c *boundedConn) set(busy bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.touch(c, busy)
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
