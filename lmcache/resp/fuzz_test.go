package resp

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// recorded is a connection of a client that sends its input and no more.
type recorded struct {
	in     *bytes.Reader
	out    bytes.Buffer
	closed chan struct{}
}

func (c *recorded) Read(p []byte) (int, error)     { return c.in.Read(p) }
func (c *recorded) Write(p []byte) (int, error)    { return c.out.Write(p) }
func (c *recorded) Close() error                   { close(c.closed); return nil }
func (*recorded) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (*recorded) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (*recorded) SetDeadline(time.Time) error      { return nil }
func (*recorded) SetReadDeadline(time.Time) error  { return nil }
func (*recorded) SetWriteDeadline(time.Time) error { return nil }

// FuzzInput: whatever a client sends, the server answers whole answers, and has nothing left of it.
func FuzzInput(f *testing.F) {
	for _, seed := range [][]byte{
		encode("PING"), encode("SET", "k", "value"), encode("GET", "k"), encode("EXISTS", "k", "k"),
		encode("HELLO", "3", "AUTH", "default", "x", "SETNAME", "a"),
		encode("CLIENT", "SETINFO", "LIB-NAME", "x"), encode("MGET", "a", "b"), encode("DEL", "k"),
		encode("FLUSHALL"), encode("SET", "k", "v", "EX", "9"),
		[]byte("*1\r\n$9223372036854775807\r\n"), []byte("*-1\r\n*0\r\n"),
		[]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99999\r\nabc"), []byte("GET /\r\n"),
	} {
		f.Add(append(bytes.Clone(seed), encode("GET", "k")...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		memory := tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: 64 << 10})
		store, err := tier.Open(t.Context(), tier.Options{Memory: memory})
		require.NoError(t, err)
		s, err := NewServer(Options{Store: store, Space: space, Flush: true})
		require.NoError(t, err)
		c := &recorded{in: bytes.NewReader(input), closed: make(chan struct{})}
		s.accept(c)
		<-c.closed
		s.Shutdown(context.Background())
		in := bufio.NewReader(&c.out)
		for {
			if _, err := in.Peek(1); err != nil {
				break
			}
			answer, err := readAnswer(in)
			require.NoError(t, err, "%q", answer)
		}
		require.Empty(t, s.readers.busy)
		require.Empty(t, s.writers.busy)
		require.Empty(t, s.pins.at)
		require.Empty(t, store.Leases())
		require.NoError(t, store.Close())
	})
}
