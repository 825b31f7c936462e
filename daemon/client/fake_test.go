package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// fake is a daemon that a test answers for. answer returns nil to hang up.
type fake struct {
	socket string
	answer func(q *wire.Request) *wire.Reply
	frame  func(frame []byte) []byte // of each reply, if not nil, in place of it

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	hellos   []wire.Request
	segment  wire.Segment
	work     sync.WaitGroup
}

func newFake(t *testing.T, answer func(q *wire.Request) *wire.Reply) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "wire") // t.TempDir can be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	f := &fake{socket: filepath.Join(dir, "s"), answer: answer, segment: wire.Segment{Name: "ringcache", Size: 1 << 16, Generation: 1, Inode: 2}}
	f.start(t)
	t.Cleanup(f.stop)
	return f
}

func (f *fake) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", f.socket)
	require.NoError(t, err)
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, conn)
			f.mu.Unlock()
			f.work.Go(func() { f.serve(conn) })
		}
	})
}

// stop ends the listener and all connections, as a daemon that is killed.
func (f *fake) stop() {
	f.mu.Lock()
	_ = f.listener.Close()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.work.Wait()
}

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	r := wire.NewReader(conn, wire.MaxRequest)
	var q wire.Request
	for {
		body, err := r.Next()
		if err != nil {
			return
		}
		p := &wire.Reply{}
		if err := wire.DecodeRequest(body, &q); err != nil {
			if !errors.As(err, &p.Error) {
				panic(err)
			}
		} else if q.Op == wire.Hello {
			f.mu.Lock()
			f.hellos = append(f.hellos, q)
			s := f.segment
			f.mu.Unlock()
			p = f.answer(&q)
			if p != nil && p.Error == nil {
				p.Version, p.Segment, p.Limits = wire.Version, &s, &wire.Limits{Names: wire.MaxNames}
			}
		} else {
			p = f.answer(&q)
		}
		if p == nil {
			return
		}
		if p.ID == 0 {
			p.ID = q.ID
		}
		out, err := wire.AppendReply(nil, p)
		if err != nil {
			panic(err)
		}
		if f.frame != nil {
			out = f.frame(out)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// change makes the next Hello tell of another segment.
func (f *fake) change(s wire.Segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.segment = s
}

func (f *fake) said() []wire.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hellos
}

// same answers each name with one item.
func same(s wire.Status) func(q *wire.Request) *wire.Reply {
	return func(q *wire.Request) *wire.Reply {
		p := &wire.Reply{}
		for range len(q.Names) + len(q.Objects) {
			p.Items = append(p.Items, wire.Item{Status: s})
		}
		if q.Op == wire.Release {
			p.Items = nil
		}
		return p
	}
}

func dial(t *testing.T, f *fake, o Options) *Client {
	t.Helper()
	o.Socket = f.socket
	if o.Name == "" {
		o.Name = "test"
	}
	c, err := Dial(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}
