package daemon

import (
	"net"
	"sync"
	"time"
)

const (
	// maxHTTP is the most connections of HTTP at a time, where there are descriptors for them.
	maxHTTP = 64
	// youngHTTP is how long a connection has for its request before it may be closed for another one. What
	// waited to be accepted has sent it by then. The longer this is, the longer a probe waits behind those
	// that connected before.
	youngHTTP = 50 * time.Millisecond
)

// connKey is the key of a *boundedConn in the context of its requests.
type connKey struct{}

// bounded is a listener with a most of connections. If there are too many, the next one is accepted when
// another one was closed for it: of those that are not young, and of the address that has the most, the one
// that has kept the daemon waiting for a request for longest. So whoever sends a request as soon as it is
// connected is answered, but behind those that connected before: a client that connects all the time makes
// others wait for their turn.
type bounded struct {
	net.Listener
	most  int
	young time.Duration // youngHTTP, but in tests

	ended  chan struct{} // has a value after a connection ended
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex // guards what follows
	turn  uint64     // counts beginnings
	conns map[*boundedConn]struct{}
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{
		Listener: l, most: most, young: youngHTTP, ended: make(chan struct{}, 1), closed: make(chan struct{}),
		conns: map[*boundedConn]struct{}{},
	}
}

// boundedConn is a connection of a bounded. Fields are guarded by its lock.
type boundedConn struct {
	net.Conn
	l     *bounded
	peer  string
	came  time.Time
	since uint64 // turn of its last beginning: when it was accepted, or its last request came or was answered
	busy  bool   // a request is being answered
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	for {
		wait := l.untilRoom(time.Now())
		if wait <= 0 {
			break
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.ended:
		case <-l.closed:
		}
		t.Stop()
		if l.isClosed() {
			break
		}
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{Conn: conn, l: l, peer: conn.RemoteAddr().String(), came: time.Now()}
	if host, _, err := net.SplitHostPort(c.peer); err == nil {
		c.peer = host
	}
	if worst := l.add(c); worst != nil {
		_ = worst.Conn.Close() // its server notices, and closes it again
	}
	return c, nil
}

// Close implements net.Listener.
func (l *bounded) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *bounded) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// untilRoom returns how long there is no room, if no connection ends: there are as many as there may be, and
// all are young.
func (l *bounded) untilRoom(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) < l.most {
		return 0
	}
	least := l.young
	for c := range l.conns {
		least = min(least, c.came.Add(l.young).Sub(now))
	}
	return least
}

// add adds a connection, and removes and returns the one that has to go for it, if any.
func (l *bounded) add(c *boundedConn) (worst *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.most {
		worst = l.worst(c.came)
		delete(l.conns, worst)
	}
	l.conns[c] = struct{}{}
	l.touch(c, false)
	return worst
}

// worst returns the connection that goes first. There is one that is not young.
func (l *bounded) worst(now time.Time) (worst *boundedConn) {
	perPeer := map[string]int{}
	for c := range l.conns {
		perPeer[c.peer]++
	}
	worse := func(a, b *boundedConn) bool {
		switch {
		case l.isYoung(a, now) != l.isYoung(b, now):
			return l.isYoung(b, now)
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

func (l *bounded) isYoung(c *boundedConn, now time.Time) bool { return now.Sub(c.came) < l.young }

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
	select {
	case c.l.ended <- struct{}{}:
	default:
	}
	return c.Conn.Close()
}
