//go:build linux

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// bed is a server over a segment, and what is below it.
type bed struct {
	testing.TB
	dir    string // of everything
	mo     memory.Options
	so     ServerOptions
	lower  []tier.Lower
	clock  *clock
	level  *memory.Level
	store  *tier.Store
	server *Server
	socket string
	served chan error

	strangers bool // there are leases that the server did not make
}

// newBed starts a server with a segment of a mebibyte. change may change the options.
func newBed(t testing.TB, change func(*bed)) *bed {
	t.Helper()
	b := &bed{TB: t, dir: t.TempDir(), clock: &clock{at: time.Unix(1_800_000_000, 0)}}
	b.mo = memory.Options{Name: "pool", Dir: b.dir, Size: 1 << 20, MaxObjects: 256, MaxLeases: 64, MaxPins: 1024, Now: b.clock.now}
	b.so = ServerOptions{ShmDir: b.dir, Version: "test", now: b.clock.now}
	if change != nil {
		change(b)
	}
	b.start()
	t.Cleanup(func() {
		if b.server != nil {
			b.stop()
		}
	})
	return b
}

// withDisk gives the store a disk.
func withDisk(b *bed) {
	d, err := disk.Open(filepath.Join(b.dir, "disk"), disk.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, d.Close()) })
	b.lower = []tier.Lower{{Level: d}}
}

// start starts what a daemon has, over what is there.
func (b *bed) start() {
	b.Helper()
	var err error
	b.level, err = memory.Open(b.mo)
	require.NoError(b, err)
	b.store, err = tier.Open(context.Background(), tier.Options{Memory: b.level, Lower: b.lower})
	require.NoError(b, err)
	b.so.Store, b.so.Memory = b.store, b.level
	b.server, err = NewServer(b.so)
	require.NoError(b, err)
	b.listen()
}

// listen lets the server listen at a socket.
func (b *bed) listen() {
	b.Helper()
	dir, err := os.MkdirTemp("", "rc") // a socket's path is short
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, os.RemoveAll(dir)) })
	b.socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", b.socket)
	require.NoError(b, err)
	s, served := b.server, make(chan error, 1)
	b.served = served
	go func() { served <- s.Serve(l) }()
}

// stop ends everything, and verifies what must hold then.
func (b *bed) stop() {
	b.Helper()
	if !b.strangers { // the test's connections may be closing
		b.eventually("the registry agrees with the store", func() bool { return b.server.registry.Check() == nil })
	}
	b.strangers = false
	assert.NoError(b, b.level.CheckStructure())
	assert.NoError(b, b.server.Shutdown(context.Background()))
	assert.NoError(b, <-b.served)
	b.server = nil
	assert.NoError(b, b.store.Close())
	assert.NoError(b, b.level.CheckStructure())
	assert.NoError(b, b.level.Close())
}

// restart ends the server and starts the next one over the same segment.
func (b *bed) restart() {
	b.Helper()
	b.stop()
	b.start()
}

// eventually waits for what another goroutine does.
func (b *bed) eventually(what string, is func() bool) {
	b.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 2*time.Minute {
			b.Fatalf("%s: it did not come to that", what)
		}
	}
}

// peer is a client that says what a test wants.
type peer struct {
	testing.TB
	conn   io.ReadWriteCloser
	reader *wire.Reader
	id     uint64
}

const session1 = "session-1"

// dial connects to the server.
func (b *bed) dial() *peer {
	b.Helper()
	conn, err := net.Dial("unix", b.socket)
	require.NoError(b, err)
	p := &peer{TB: b.TB, conn: conn, reader: wire.NewReader(conn, wire.MaxReply)}
	b.Cleanup(func() { _ = conn.Close() })
	return p
}

// hello connects, and opens a session.
func (b *bed) hello(session string) *peer {
	b.Helper()
	p := b.dial()
	p.hello(session)
	return p
}

func (p *peer) hello(session string) wire.Reply {
	p.Helper()
	r := p.ok(wire.Request{Op: wire.Hello, Version: wire.Version, Session: session, Client: "test"})
	require.Equal(p, wire.Version, r.Version)
	return r
}

// send sends a request, and returns its ID.
func (p *peer) send(q wire.Request) uint64 {
	p.Helper()
	p.id++
	q.ID = p.id
	out, err := wire.AppendRequest(nil, &q)
	require.NoError(p, err)
	_, err = p.conn.Write(out)
	require.NoError(p, err)
	return q.ID
}

// receive returns the next reply.
func (p *peer) receive() (wire.Reply, error) {
	var r wire.Reply
	body, err := p.reader.Next()
	if err == nil {
		err = wire.DecodeReply(body, &r)
	}
	return r, err
}

// do sends a request and returns the reply.
func (p *peer) do(q wire.Request) wire.Reply {
	p.Helper()
	id := p.send(q)
	r, err := p.receive()
	require.NoError(p, err)
	require.Equal(p, id, r.ID)
	return r
}

// ok does what may not be refused.
func (p *peer) ok(q wire.Request) wire.Reply {
	p.Helper()
	r := p.do(q)
	require.Nil(p, r.Error, "%s", q.Op)
	return r
}

// refused does what has to be refused, and returns the text.
func (p *peer) refused(kind wire.Kind, q wire.Request) string {
	p.Helper()
	r := p.do(q)
	require.NotNil(p, r.Error, "%s", q.Op)
	require.Equal(p, kind, r.Error.Kind, r.Error.Text)
	return r.Error.Text
}

// ends expects that the server closes the connection.
func (p *peer) ends() {
	p.Helper()
	_, err := p.receive()
	require.Error(p, err)
	require.NotErrorIs(p, err, os.ErrDeadlineExceeded)
}

const space = "space"

func (p *peer) pin(lease string, names ...string) []wire.Item {
	p.Helper()
	return p.ok(wire.Request{Op: wire.Pin, Lease: lease, Space: space, Names: names}).Items
}

func (p *peer) get(lease string, names ...string) []wire.Item {
	p.Helper()
	return p.ok(wire.Request{Op: wire.Get, Lease: lease, Space: space, Names: names}).Items
}

func (p *peer) reserve(lease string, names ...string) []wire.Item {
	p.Helper()
	return p.ok(wire.Request{Op: wire.Reserve, Lease: lease, Space: space, Objects: objects(names...)}).Items
}

func (p *peer) commit(lease string, keep bool, names ...string) []wire.Item {
	p.Helper()
	return p.ok(wire.Request{Op: wire.Commit, Lease: lease, Space: space, Names: names, Keep: keep}).Items
}

func (p *peer) abort(lease string, names ...string) []wire.Item {
	p.Helper()
	return p.ok(wire.Request{Op: wire.Abort, Lease: lease, Space: space, Names: names}).Items
}

func (p *peer) release(leases ...string) {
	p.Helper()
	p.ok(wire.Request{Op: wire.Release, Leases: leases})
}

func (p *peer) unpin(lease string, names ...string) {
	p.Helper()
	p.ok(wire.Request{Op: wire.Release, Lease: lease, Space: space, Names: names})
}

// store stores objects with their content.
func (p *peer) store(b *bed, names ...string) {
	p.Helper()
	items := p.reserve("storing", names...)
	for i, it := range items {
		require.Equal(p, wire.StatusReserved, it.Status, names[i])
		b.write(it, names[i])
	}
	require.Equal(p, all(wire.StatusOK, len(names)), statuses(p.commit("storing", false, names...)))
}

// write writes the content of an object as a client does: at the offset in the file.
func (b *bed) write(it wire.Item, name string) {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.dir, b.mo.Name), os.O_RDWR, 0)
	require.NoError(b, err)
	_, err = f.WriteAt(content(name), int64(it.Offset))
	require.NoError(b, errors.Join(err, f.Close()))
}

// holds expects the content of an object at its place.
func (b *bed) holds(it wire.Item, name string) {
	b.Helper()
	f, err := os.Open(filepath.Join(b.dir, b.mo.Name))
	require.NoError(b, err)
	got := make([]byte, it.Size)
	_, err = f.ReadAt(got, int64(it.Offset))
	require.NoError(b, errors.Join(err, f.Close()))
	require.True(b, bytes.Equal(content(name), got), "the bytes of %s", name)
}

// content is what the object of a name has: a thousand bytes, as objects says.
func content(name string) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%-20.20s", name)), 50)
}

func objects(names ...string) []wire.Object {
	out := make([]wire.Object, len(names))
	for i, name := range names {
		out[i] = wire.Object{Name: name, Size: 1000, Note: []byte("note of " + name)}
	}
	return out
}

func statuses(items []wire.Item) []wire.Status {
	out := make([]wire.Status, len(items))
	for i, it := range items {
		out[i] = it.Status
	}
	return out
}

func all(s wire.Status, n int) []wire.Status {
	out := make([]wire.Status, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// free expects that no lease is left, and that nothing is held.
func (b *bed) free() {
	b.Helper()
	require.NoError(b, b.server.registry.Check())
	require.Empty(b, b.store.Leases())
	n := b.server.Counters()
	require.Zero(b, n.Leases)
	require.Zero(b, n.Held)
	require.Zero(b, b.level.Usage().Held)
}
