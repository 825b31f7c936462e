package resp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// FuzzInput: whatever a client sends, the server answers whole answers, ends the connection only where the protocol is
// broken or the client says so, and has nothing left of it.
func FuzzInput(f *testing.F) {
	for _, seed := range [][]byte{
		encode("PING"), encode("SET", "k", "value"), encode("GET", "k"), encode("EXISTS", "k", "k"), encode("HELLO", "3", "AUTH", "default", "x", "SETNAME", "a"),
		encode("CLIENT", "SETINFO", "LIB-NAME", "x"), encode("MGET", "a", "b"), encode("DEL", "k"), encode("FLUSHALL"), encode("SET", "k", "v", "EX", "9"),
		[]byte("*1\r\n$9223372036854775807\r\n"), []byte("*-1\r\n*0\r\n"), []byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$99999\r\nabc"), []byte("GET /\r\n"),
	} {
		f.Add(append(bytes.Clone(seed), encode("GET", "k")...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		memory := tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: 64 << 10})
		store, err := tier.Open(t.Context(), tier.Options{Memory: memory})
		require.NoError(t, err)
		s, err := New(Options{Store: store, Space: space, Flush: true, Patience: 20 * time.Millisecond})
		require.NoError(t, err)
		here, there := net.Pipe()
		s.accept(there)
		go func() {
			_, _ = here.Write(input)
			_, _ = here.Write(encode("QUIT"))
		}()
		in := bufio.NewReader(here)
		for {
			if _, err := in.Peek(1); err != nil {
				break
			}
			answer, err := readAnswer(in)
			if err != nil { // it was cut by the end of the connection, if at all
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%q", answer)
				break
			}
			if len(answer) > 1<<20 {
				t.Fatal("an answer is large")
			}
		}
		_ = here.Close()
		s.Shutdown(context.Background())
		require.Empty(t, s.readers.busy)
		require.Empty(t, s.writers.busy)
		require.Empty(t, s.pins.at)
		require.Empty(t, store.Leases())
		require.NoError(t, store.Close())
	})
}
