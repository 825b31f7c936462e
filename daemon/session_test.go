//go:build linux

package daemon

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// TestHello: what a connection has to say first.
func TestHello(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial()
	for _, q := range []wire.Request{{Op: wire.Stat}, {Op: wire.Clear}, {Op: wire.Release, Leases: []string{"l"}}} {
		p.refused(wire.KindHello, q)
	}
	p.hello(session1)
	p.hello(session1)
	p.refused(wire.KindInvalid, helloOf("session-2"))
	p.pin("l", "a") // the first one is still there
	require.Equal(t, 1, b.server.Counters().Sessions)

	old := b.dial()
	q := helloOf("session-3")
	q.Version = wire.Version + 1
	require.Contains(t, old.refused(wire.KindVersion, q), "upgrade the daemon")
	old.ends()
	require.NoError(t, p.conn.Close())
	b.eventually("a session without leases is forgotten", func() bool { return b.server.Counters().Sessions == 0 })
	b.free()
}

// TestSessionIsTakenOver: a connection of the same process takes a session over, with all it has. The one
// before is closed.
func TestSessionIsTakenOver(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a")
	hit := p.pin("l", "a")
	q := b.hello(session1)
	p.ends()
	require.Equal(t, hit, q.get("l", "a"))
	require.NoError(t, q.conn.Close())
	b.eventually("the connection is gone", func() bool { return b.server.Counters().Connections == 0 })
	require.Equal(t, 1, b.server.Counters().Sessions, "a closed connection ends nothing")
	b.pass(10*time.Minute, "the end of the lease", func() bool { return b.server.Counters().Sessions == 0 })
	b.free()
}

// slowLevel is a memory level in which Lease waits.
type slowLevel struct {
	*memory.Level
	began, goOn chan struct{}
	slow        atomic.Bool
}

func (s *slowLevel) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	switch {
	case strings.HasSuffix(o.ID, "/panic"):
		panic("a test wants it")
	case s.slow.Load():
		close(s.began)
		<-s.goOn
	}
	return s.Level.Lease(ctx, o)
}

// newSlowBed starts a server over a level that waits in Lease.
func newSlowBed(t *testing.T) (*bed, *slowLevel) {
	t.Helper()
	slow := &slowLevel{began: make(chan struct{}), goOn: make(chan struct{})}
	b := &bed{TB: t, dir: t.TempDir(), clock: &clock{at: time.Unix(1_800_000_000, 0)}}
	b.mo = memory.Options{Name: "pool", Dir: b.dir, Size: 1 << 20, Now: b.clock.now}
	var err error
	b.level, err = memory.Open(b.mo)
	require.NoError(t, err)
	slow.Level = b.level
	b.store, err = tier.Open(t.Context(), tier.Options{Memory: slow})
	require.NoError(t, err)
	b.so = ServerOptions{Store: b.store, Memory: slow, ShmDir: b.dir, now: b.clock.now}
	b.server, err = NewServer(b.so)
	require.NoError(t, err)
	b.listen()
	t.Cleanup(func() {
		if b.server != nil {
			b.stop()
		}
	})
	return b, slow
}

// TestTakeoverWaitsForTheRequestBefore: what is under way for a session ends before it is another connection's.
func TestTakeoverWaitsForTheRequestBefore(t *testing.T) {
	b, slow := newSlowBed(t)
	p := b.hello(session1)
	p.store(b, "a")
	slow.slow.Store(true)
	p.send(wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: []string{"a"}})
	<-slow.began
	slow.slow.Store(false)
	answered := make(chan wire.Reply)
	q := b.dial()
	q.send(helloOf(session1))
	go func() {
		r, _ := q.receive()
		answered <- r
	}()
	b.eventually("the second hello has arrived", func() bool { return b.server.Counters().Connections == 2 })
	select {
	case <-answered:
		t.Fatal("the session was taken over in the middle of a request")
	case <-time.After(20 * time.Millisecond): // no proof, but a chance
	}
	close(slow.goOn)
	require.Nil(t, (<-answered).Error)
	require.Equal(t, all(wire.StatusHit, 1), statuses(q.get("l", "a")))
	q.release("l")
	b.free()
}

// TestPanic: a panic costs the client its connection, and nobody else anything.
func TestPanic(t *testing.T) {
	b, _ := newSlowBed(t)
	p, q := b.hello(session1), b.hello("session-2")
	p.store(b, "a")
	p.pin("l", "a")
	p.refused(wire.KindInternal, wire.Request{Op: wire.Pin, Lease: "panic", Space: space, Names: []string{"a"}})
	p.ends()
	require.Equal(t, all(wire.StatusHit, 1), statuses(q.pin("l", "a")))
	p = b.hello(session1)
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.get("l", "a")), "the session goes on")
	p.release("l")
	q.release("l")
	b.free()
}

// TestOtherProcess: a session is its process's. It ends with that, and not with connections.
func TestOtherProcess(t *testing.T) {
	b := newBed(t, nil)
	one, two := newPuppet(t), newPuppet(t)
	p, q := one.hello(b.socket, session1), two.hello(b.socket, "session-2")
	p.store(b, "a", "b")
	p.pin("l", "a")
	p.reserve("w", "x")
	require.Contains(t, two.dial(b.socket).refused(wire.KindPermission, helloOf(session1)), fmt.Sprint(one.pid()))
	require.NoError(t, p.conn.Close())
	intruder := two.dial(b.socket)
	intruder.refused(wire.KindPermission, helloOf(session1))
	intruder.ends()
	require.Equal(t, all(wire.StatusHit, 1), statuses(q.pin("l", "b")))
	p = one.hello(b.socket, session1)
	require.Equal(t, all(wire.StatusReserved, 1), statuses(p.get("w", "x")))
	require.Equal(t, 2, b.server.Counters().Processes)
	b.clock.pass(time.Hour)
	require.Equal(t, all(wire.StatusPending, 1), statuses(q.reserve("w", "x")), "its time has passed, and it may be writing yet")
	one.kill()
	b.eventually("what the dead process had ends", func() bool { return q.reserve("w", "x")[0].Status == wire.StatusReserved })
	p.ends()
	b.eventually("the connection is gone", func() bool { return b.server.Counters().Processes == 1 })
	require.NotZero(t, b.server.Counters().EndedByExit)
	q = two.hello(b.socket, session1) // the name is free
	require.NoError(t, b.server.registry.Check())
	two.kill()
	b.eventually("everything ends", func() bool { return b.server.Counters().Sessions == 0 })
	b.free()
	q.ends()
}

// canBeAnother reports whether a puppet can be another user's process.
func canBeAnother() bool {
	for dir := os.TempDir(); dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&1 == 0 {
			return false
		}
	}
	return os.Geteuid() == 0
}

// TestOtherUser: other users are refused.
func TestOtherUser(t *testing.T) {
	if !canBeAnother() {
		t.Skip("only root can be another user, in a folder that is for all")
	}
	b := newBed(t, nil)
	require.NoError(t, os.Chmod(b.socket, 0o777))
	require.NoError(t, os.Chmod(strings.TrimSuffix(b.socket, "/s"), 0o755))
	nobody := newPuppetAs(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	p := nobody.dial(b.socket)
	require.Contains(t, p.refused(wire.KindPermission, helloOf(session1)), "65534")
	p.ends()
	b.eventually("the connection is gone", func() bool { return b.server.Counters().Connections == 0 })
	b.free()
}

// TestConnectionsAreBounded: in all, and of one process.
func TestConnectionsAreBounded(t *testing.T) {
	b := newBed(t, func(b *bed) {
		b.so.Limits, b.mo.MaxLeases = Limits{MaxConnections: 8, MaxSessions: 40, MaxLeases: 2}, 16
	})
	one := newPuppet(t)
	var open []*peer
	for i := range 2 {
		open = append(open, one.hello(b.socket, fmt.Sprint("session-", i)))
	}
	third := one.dial(b.socket)
	third.refused(wire.KindBusy, helloOf("session-3"))
	third.ends()
	second := newPuppet(t)
	open = append(open, second.hello(b.socket, fmt.Sprint("session-", second.pid())))
	second.dial(b.socket).refused(wire.KindBusy, helloOf("session-4")) // the more others have, the less
	for range 5 {
		other := newPuppet(t)
		open = append(open, other.hello(b.socket, fmt.Sprint("session-", other.pid())))
	}
	late := b.dial()
	late.refused(wire.KindBusy, helloOf(session1))
	late.ends()
	require.NoError(t, open[7].conn.Close())
	b.eventually("a place is free", func() bool { return b.server.Counters().Connections == 7 })
	open[7] = b.hello("session-own")

	// Leases of a session, and of a process.
	require.NoError(t, b.server.SetLimits(Limits{MaxConnections: 64, MaxSessions: 40, MaxLeases: 2}))
	p := open[0]
	p.store(b, "a")
	p.pin("1", "a")
	p.pin("2", "a")
	p.refused(wire.KindBusy, wire.Request{Op: wire.Pin, Lease: "3", Space: space, Names: []string{"a"}})
	p.pin("1", "a")
	p.release("1")
	p.pin("3", "a")
	open[1].pin("1", "a")
	open[1].pin("2", "a")
	require.NoError(t, p.conn.Close())
	b.eventually("a place is free", func() bool { return b.server.Counters().Connections == 7 })
	p = one.hello(b.socket, "session-third")
	p.refused(wire.KindBusy, wire.Request{Op: wire.Pin, Lease: "1", Space: space, Names: []string{"a"}}) // the process has 4
	require.NoError(t, p.conn.Close())
	b.eventually("a place is free", func() bool { return b.server.Counters().Connections == 7 })
	p = one.hello(b.socket, "session-0")
	p.release("2", "3")
	p.pin("4", "a")
	require.NoError(t, b.server.registry.Check())
	var busy uint64
	for _, r := range b.server.Counters().Refused {
		if r.Kind == wire.KindBusy {
			busy = r.Count
		}
	}
	require.Equal(t, uint64(5), busy)
	one.kill()
	b.eventually("everything ends", func() bool { return b.server.Counters().Leases == 0 })
	b.free()
}

// TestRefusedConnectionsTakeNobodysPlace: connections that are one too many for their process waited a second for
// a request to answer, and were counted meanwhile, so that a process that made ever more kept all others out.
func TestRefusedConnectionsTakeNobodysPlace(t *testing.T) {
	b := newBed(t, func(b *bed) { b.so.Limits = Limits{MaxConnections: 16} })
	greedy := newPuppet(t)
	for i := range 4 {
		greedy.hello(b.socket, fmt.Sprint("session-", i))
	}
	for range 30 {
		greedy.dial(b.socket)
	}
	for i := range 2 { // a connection is accepted after those before it
		b.hello(fmt.Sprint("session-own-", i))
	}
	require.Equal(t, 6, b.server.Counters().Connections)
}

// TestSessionsOfAProcess: a process has a quarter of the sessions.
func TestSessionsOfAProcess(t *testing.T) {
	b := newBed(t, func(b *bed) { b.so.Limits.MaxSessions = 8 })
	p := b.hello(session1)
	p.store(b, "a")
	p.pin("l", "a")
	q := b.hello("session-2")
	b.dial().refused(wire.KindBusy, helloOf("session-3"))
	require.NoError(t, q.conn.Close())
	b.eventually("a session without leases ends", func() bool { return b.server.Counters().Sessions == 1 })
	q = b.hello("session-3")
	require.NoError(t, p.conn.Close())
	b.eventually("the connection is gone", func() bool { return b.server.Counters().Connections == 2 })
	b.dial().refused(wire.KindBusy, helloOf("session-4"))
	b.hello(session1).release("l")
	b.free()
	_ = q
}

// TestWhatIsNoRequest: garbage costs a connection. What is a request, and wrong, is answered.
func TestWhatIsNoRequest(t *testing.T) {
	b := newBed(t, nil)
	for name, bytes := range map[string][]byte{
		"empty":     {0, 0, 0, 0},
		"too large": binary.LittleEndian.AppendUint32(nil, wire.MaxRequest+1),
		"garbage":   []byte("GET / HTTP/1.1\r\n\r\n"),
		"no map":    {1, 0, 0, 0, 0xc0},
	} {
		p := b.dial()
		_, err := p.conn.Write(bytes)
		require.NoError(t, err)
		r, err := p.receive()
		require.NoError(t, err, name)
		require.Equal(t, wire.KindInvalid, r.Error.Kind)
		require.Zero(t, r.ID)
		p.ends()
	}
	p := b.hello(session1)
	p.refused(wire.KindInvalid, wire.Request{Op: wire.Pin, Lease: "l"})
	p.refused(wire.KindInvalid, wire.Request{Op: wire.Stat, Space: "s"})
	long := strings.Repeat("x", tier.MaxName+1)
	require.Equal(t, []wire.Status{wire.StatusInvalid, wire.StatusMiss}, statuses(p.pin("l", long, "a")))
	require.Equal(t, []wire.Status{wire.StatusInvalid, wire.StatusReserved}, statuses(p.reserve("l", long, "a")))
	require.Equal(t, []wire.Status{wire.StatusEnded, wire.StatusOK}, statuses(p.abort("l", long, "a")))
	require.Equal(t, []wire.Status{wire.StatusEnded}, statuses(p.get("l", long)))
	require.Equal(t, []wire.Status{wire.StatusInvalid}, statuses(p.ok(wire.Request{Op: wire.Stat, Space: space, Names: []string{long}}).Items))
	p.unpin("l", long)
	b.free()
}

// TestSilentClient: who never says hello loses the connection.
func TestSilentClient(t *testing.T) {
	b := newBed(t, func(b *bed) {
		b.so.patience = patience{hello: 10 * time.Millisecond, frame: time.Hour, reply: time.Hour}
	})
	b.dial().ends()
	b.free()
}

// TestStalledClients: who stops in the middle of a request, or takes no answer, loses the connection.
// Who is idle does not.
func TestStalledClients(t *testing.T) {
	const moment = 200 * time.Millisecond
	b := newBed(t, func(b *bed) { b.so.patience = patience{hello: time.Hour, frame: moment, reply: 5 * time.Second} })
	idle := b.hello(session1)
	idle.store(b, "a")
	half, deaf := b.hello("session-2"), b.hello("session-3")
	_, err := half.conn.Write([]byte{50, 0, 0, 0, 0x81})
	require.NoError(t, err)
	half.ends()

	q := wire.Request{Op: wire.Get, Lease: "l", Space: space, ID: 1}
	for i := range wire.MaxNames {
		q.Names = append(q.Names, fmt.Sprint("name ", i))
	}
	out, err := wire.AppendRequest(nil, &q)
	require.NoError(t, err)
	require.NoError(t, deaf.conn.(net.Conn).SetWriteDeadline(time.Now().Add(time.Minute)))
	for err == nil { // until the server has had enough
		_, err = deaf.conn.Write(out)
	}
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, all(wire.StatusHit, 1), statuses(idle.pin("l", "a")))
	idle.release("l")
	b.eventually("only who was idle is left", func() bool { return b.server.Counters().Connections == 1 })
	b.free()
}

// TestEachFrameHasItsTime: a client whose reads always end in the middle of a request, since it sends the
// next one before, is not one that stalls.
func TestEachFrameHasItsTime(t *testing.T) {
	one, err := wire.AppendRequest(nil, &wire.Request{Op: wire.Stat, ID: 1})
	require.NoError(t, err)
	conn := &scriptedConn{pieces: [][]byte{one[:5]}}
	for range 3 {
		conn.pieces = append(conn.pieces, append(append([]byte{}, one[5:]...), one[:5]...))
	}
	conn.pieces = append(conn.pieces, one[5:], one)
	c := &connection{server: &Server{patience: ordinaryPatience}, conn: conn, session: &session{}}
	c.reader = wire.NewReader(c, wire.MaxRequest)
	for range 5 {
		_, err := c.next()
		require.NoError(t, err)
	}
	_, err = c.next()
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, conn.deadlines, 5, "one for each of the four that came in pieces, and one that ends it")
	for i, at := range conn.deadlines {
		require.Equal(t, i == 4, at.IsZero())
	}
}

// scriptedConn is a connection on which pieces arrive.
type scriptedConn struct {
	net.Conn
	pieces    [][]byte
	deadlines []time.Time
}

func (c *scriptedConn) Read(b []byte) (int, error) {
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.pieces[0])
	c.pieces = c.pieces[1:]
	return n, nil
}

func (c *scriptedConn) SetReadDeadline(at time.Time) error {
	c.deadlines = append(c.deadlines, at)
	return nil
}

// TestSlowRequest: a request may come in pieces.
func TestSlowRequest(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial()
	q := helloOf(session1)
	q.ID = 7
	out, err := wire.AppendRequest(nil, &q)
	require.NoError(t, err)
	q.ID = 8
	out, err = wire.AppendRequest(out, &q)
	require.NoError(t, err)
	for _, c := range out {
		_, err := p.conn.Write([]byte{c})
		require.NoError(t, err)
	}
	for id := range uint64(2) {
		r, err := p.receive()
		require.NoError(t, err)
		require.Equal(t, id+7, r.ID)
		require.Nil(t, r.Error)
	}
}

// TestShutdown: requests under way are answered, those behind them refused, connections closed; leases stay.
func TestShutdown(t *testing.T) {
	b, slow := newSlowBed(t)
	p, idle := b.hello(session1), b.hello("session-2")
	p.store(b, "a")
	p.pin("kept", "a")
	slow.slow.Store(true)
	var both []byte // in one piece, so that the second one has been read
	for _, lease := range []string{"l", "m"} {
		p.id++
		var err error
		both, err = wire.AppendRequest(both, &wire.Request{
			ID: p.id, Op: wire.Pin, Lease: lease, Space: space, Names: []string{"a"},
		})
		require.NoError(t, err)
	}
	_, err := p.conn.Write(both)
	require.NoError(t, err)
	<-slow.began
	slow.slow.Store(false)
	done := make(chan error, 1)
	go func() { done <- b.server.Shutdown(context.Background()) }()
	idle.ends()
	require.NoError(t, <-b.served)
	_, err = net.Dial("unix", b.socket)
	require.Error(t, err, "nobody listens")
	select {
	case <-done:
		t.Fatal("a request is under way")
	default:
	}
	close(slow.goOn)
	r, err := p.receive()
	require.NoError(t, err)
	require.Equal(t, all(wire.StatusHit, 1), statuses(r.Items))
	r, err = p.receive()
	require.NoError(t, err)
	require.NotNil(t, r.Error)
	require.Equal(t, wire.KindClosing, r.Error.Kind)
	p.ends()
	require.NoError(t, <-done)
	require.NoError(t, b.server.Shutdown(context.Background()), "again")
	l, err := net.Listen("unix", b.socket)
	require.NoError(t, err)
	require.NoError(t, b.server.Serve(l), "a server that has ended")
	require.Len(t, b.store.Leases(), 2)
	b.served <- nil
	b.stop()

	b.so.Memory, b.so.Store = nil, nil
	b.start()
	require.Equal(t, 2, b.server.Counters().Recovered)
	p = b.hello(session1)
	require.Equal(t, all(wire.StatusHit, 1), statuses(p.get("l", "a")))
	p.release("l", "kept")
	b.free()
}

// TestShutdownInAHurry: if its time is over, connections are closed whatever is under way.
func TestShutdownInAHurry(t *testing.T) {
	b, slow := newSlowBed(t)
	p := b.hello(session1)
	slow.slow.Store(true)
	p.send(wire.Request{Op: wire.Pin, Lease: "l", Space: space, Names: []string{"a"}})
	<-slow.began
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.server.Shutdown(ctx) }()
	b.eventually("it ends", b.server.isClosing)
	cancel()
	p.ends()
	close(slow.goOn)
	require.ErrorIs(t, <-done, context.Canceled)
}

// TestListenersThatAreNoUnixSockets are refused.
func TestListenersThatAreNoUnixSockets(t *testing.T) {
	b := newBed(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	require.ErrorIs(t, b.server.Serve(l), os.ErrInvalid)
	packets, err := net.Listen("unixpacket", b.socket+"p")
	require.NoError(t, err)
	defer packets.Close()
	require.ErrorIs(t, b.server.Serve(packets), os.ErrInvalid, "it has no stream of bytes")
}

// TestSeveralListeners: all of them reach the same sessions.
func TestSeveralListeners(t *testing.T) {
	b := newBed(t, nil)
	first := b.socket
	p := b.hello(session1)
	p.store(b, "a")
	served := b.served
	b.listen()
	require.NotEqual(t, first, b.socket)
	q := b.hello("session-2")
	require.Equal(t, all(wire.StatusHit, 1), statuses(q.pin("l", "a")))
	q.release("l")
	b.stop()
	require.NoError(t, <-served)
}

// TestClientsTogether: many clients at once, that come and go.
func TestClientsTogether(t *testing.T) {
	b := newBed(t, func(b *bed) {
		withDisk(b)
		b.mo.MaxLeases = 4 * 16 * 3
	})
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			p := b.hello(fmt.Sprint("session-", i))
			for round := range 40 {
				name := fmt.Sprint("n", (i+round)%12)
				lease := fmt.Sprint("l", round%3)
				switch (i + round) % 7 {
				case 0, 1:
					if it := p.reserve(lease, name)[0]; it.Status == wire.StatusReserved {
						b.write(it, name)
						p.commit(lease, round%2 == 0, name)
					}
				case 2, 3:
					if it := p.pin(lease, name)[0]; it.Status == wire.StatusHit {
						b.holds(it, name)
					}
				case 4:
					p.release(lease)
				case 5:
					p.ok(wire.Request{Op: wire.Stat, List: true, Space: space, Names: []string{name}})
				default:
					if round%2 == 0 {
						p.ok(wire.Request{Op: wire.Clear, Space: space})
					}
					_ = p.conn.(io.Closer).Close()
					p = b.hello(fmt.Sprint("session-", i))
				}
			}
			p.release("l0", "l1", "l2")
		})
	}
	clients.Wait()
	b.eventually("the end of Clear", func() bool { return !b.server.State().Clearing })
	if _, err := b.store.Drain(t.Context()); err != nil { // Clear may take what was stored again before it is written
		require.ErrorContains(t, err, "stored again")
	}
	b.eventually("nothing is held", func() bool { return b.level.Usage().Held == 0 })
	b.free()
}
