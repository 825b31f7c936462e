package resp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

const space = "values"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a server over a store of a memory level and a lower one.
type bed struct {
	t      testing.TB
	memory *tiertest.Map
	disk   *tiertest.Fault
	store  *tier.Store
	server *Server
	addr   string
}

// newBed starts a server. memory is the capacity of the memory level, 0 for no limit; change may change the options.
func newBed(t testing.TB, memory int64, lower bool, change func(*Options)) *bed {
	t.Helper()
	b := &bed{t: t, memory: tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: memory})}
	o := tier.Options{Memory: b.memory}
	if lower {
		b.disk = tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "disk"}))
		o.Lower = []tier.Lower{{Level: b.disk}}
	}
	var err error
	b.store, err = tier.Open(t.Context(), o)
	require.NoError(t, err)
	ro := Options{Store: b.store, Space: space, Flush: true}
	if change != nil {
		change(&ro)
	}
	b.server, err = NewServer(ro)
	require.NoError(t, err)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(l) }()
	t.Cleanup(func() {
		b.server.Shutdown(context.Background())
		assert.NoError(t, <-served)
		b.validate()
		_, _ = b.store.Drain(context.Background()) // what was deleted while it waited is an error
		assert.NoError(t, b.store.Close())
	})
	return b
}

// validate checks the structure of a server that has ended: nothing is pinned, reserved or waited for.
func (b *bed) validate() {
	s := b.server
	assert.Zero(b.t, s.Counts().Connected)
	assert.Empty(b.t, s.readers.busy)
	assert.Empty(b.t, s.writers.busy)
	assert.Empty(b.t, s.pins.at)
	assert.Zero(b.t, s.pins.order.Len())
	assert.Len(b.t, s.affirmed.at, s.affirmed.order.Len())
	assert.Empty(b.t, b.store.Leases())
	for o, err := range b.store.List(context.Background(), "") {
		assert.NoError(b.t, err)
		assert.Equal(b.t, space, o.Space)
	}
}

// pinned is how many objects EXISTS pins.
func (b *bed) pinned() int {
	b.server.pins.mu.Lock()
	defer b.server.pins.mu.Unlock()
	return len(b.server.pins.at)
}

// peer is a client that sees bytes.
type peer struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Minute)))
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{t, conn, bufio.NewReader(conn)}
}

func (b *bed) dial() *peer { return dial(b.t, b.addr) }

// encode returns a command as clients write it.
func encode(args ...string) []byte {
	out := []byte("*" + strconv.Itoa(len(args)) + "\r\n")
	for _, a := range args {
		out = append(out, "$"+strconv.Itoa(len(a))+"\r\n"+a+"\r\n"...)
	}
	return out
}

func (p *peer) send(args ...string) {
	p.t.Helper()
	_, err := p.conn.Write(encode(args...))
	require.NoError(p.t, err)
}

// do sends a command and returns the bytes of the answer.
func (p *peer) do(args ...string) string {
	p.t.Helper()
	p.send(args...)
	return p.answer()
}

// answer reads an answer.
func (p *peer) answer() string {
	p.t.Helper()
	s, err := readAnswer(p.in)
	require.NoError(p.t, err)
	return s
}

// exactly reads so many bytes.
func (p *peer) exactly(n int) string {
	p.t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(p.in, b)
	require.NoError(p.t, err)
	return string(b)
}

// ended requires the end of the connection.
func (p *peer) ended() {
	p.t.Helper()
	_, err := p.in.ReadByte()
	require.Error(p.t, err)
	require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded, "the server is silent")
}

// readAnswer reads the bytes of an answer.
func readAnswer(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil || !strings.HasSuffix(line, "\r\n") || len(line) < 3 {
		return line, fmt.Errorf("a line that is %q: %w", line, io.ErrUnexpectedEOF)
	}
	n, numErr := strconv.Atoi(line[1 : len(line)-2])
	switch line[0] {
	case '+', '-', '_', ':':
		return line, nil
	case '$':
		if n < 0 || numErr != nil {
			return line, numErr
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return line, err
		}
		return line + string(b), nil
	case '*', '%':
		if line[0] == '%' {
			n *= 2
		}
		for range n {
			one, err := readAnswer(in)
			if line += one; err != nil {
				return line, err
			}
		}
		return line, numErr
	}
	return line, fmt.Errorf("an answer begins with %q", line)
}

func bulk(s string) string { return "$" + strconv.Itoa(len(s)) + "\r\n" + s + "\r\n" }

// randomText returns n bytes.
func randomText(r *rand.Rand, n int) string {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%016x", r.Uint64())
	}
	return b.String()[:n]
}
