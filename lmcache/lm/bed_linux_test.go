package lm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// bed is a server over a segment.
type bed struct {
	testing.TB
	memory  *memory.Level
	store   *tier.Store
	server  *Server
	address string
	log     bytes.Buffer
}

type bedOptions struct {
	size    int64 // of the segment; 0 is a mebibyte
	disk    bool  // there is a level below
	options Options
}

func newBed(t testing.TB, o bedOptions) *bed {
	t.Helper()
	b := &bed{TB: t}
	if o.size == 0 {
		o.size = 1 << 20
	}
	dir := t.TempDir()
	var err error
	b.memory, err = memory.Open(memory.Options{Name: "pool", Dir: dir, Size: o.size})
	require.NoError(t, err)
	options := tier.Options{Memory: b.memory}
	var lower *disk.Level
	if o.disk {
		lower, err = disk.Open(filepath.Join(dir, "disk"), disk.Options{})
		require.NoError(t, err)
		options.Lower = []tier.Lower{{Level: lower}}
	}
	b.store, err = tier.Open(context.Background(), options)
	require.NoError(t, err)
	if o.options.Open == nil {
		o.options.Open = func(net.Conn, func()) (Store, error) { return Over(b.store), nil }
	}
	o.options.Logger = slog.New(slog.NewTextHandler(&b.log, nil))
	b.server, err = NewServer(o.options)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(l) }()
	t.Cleanup(func() {
		b.server.Shutdown(context.Background())
		assert.NoError(t, <-served)
		assert.Empty(t, b.store.Leases(), "a connection that has ended has no lease")
		assert.NoError(t, b.store.Close())
		assert.NoError(t, b.memory.CheckStructure())
		assert.NoError(t, b.memory.Close())
		if lower != nil {
			assert.NoError(t, lower.Close())
		}
	})
	return b
}

// dial connects to the server.
func (b *bed) dial() net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", b.address)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	require.NoError(b, c.SetDeadline(time.Now().Add(5*time.Minute)))
	return c
}

// client returns a client of the server.
func (b *bed) client(f Form) *Client {
	c := NewClient(ClientOptions{Address: b.address, Form: f})
	b.Cleanup(func() { assert.NoError(b, c.Close()) })
	return c
}

// write sends bytes.
func write(t testing.TB, c net.Conn, p []byte) {
	t.Helper()
	_, err := c.Write(p)
	require.NoError(t, err)
}

// header returns the header of a request.
func header(t testing.TB, f Form, q Request) []byte {
	t.Helper()
	b, err := f.AppendRequest(nil, &q)
	require.NoError(t, err)
	return b
}

// requireReply reads a reply, with a value if there is one.
func requireReply(t testing.TB, c net.Conn, code Code, value []byte) {
	t.Helper()
	b := make([]byte, 36)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	p, err := Located.DecodeReply(b)
	require.NoError(t, err)
	require.Equal(t, code, p.Code)
	require.Equal(t, len(value), int(p.Length))
	got := make([]byte, p.Length)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, got))
}

// requireClosed requires that the server has closed a connection, without sending anything else.
func requireClosed(t testing.TB, c net.Conn) {
	t.Helper()
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the server is silent")
	require.Error(t, err)
}
