package daemon

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
)

// respClient is a client of Redis that allocates nothing.
type respClient struct {
	testing.TB
	conn  net.Conn
	in    *bufio.Reader
	value []byte // of each answer
}

// newRESPClient starts a daemon that serves clients of Redis at a socket, stores a value under "k", and returns a client.
func newRESPClient(t testing.TB, size int) *respClient {
	t.Helper()
	c, _, socket := respConfig(t)
	c.RESPPasswordFile, c.Size = "", 16<<20
	d := start(t, c)
	t.Cleanup(func() { d.end(t) })
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r := &respClient{t, conn, bufio.NewReader(conn), bytes.Repeat([]byte("v"), size)}
	_, err = fmt.Fprintf(conn, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", size, r.value)
	require.NoError(t, err)
	r.expect("+OK\r\n")
	return r
}

func (r *respClient) expect(line string) {
	got, err := r.in.ReadSlice('\n')
	if err != nil || string(got) != line {
		r.Fatalf("the answer is %q, %v", got, err)
	}
}

var getCommand = []byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")

func (r *respClient) get(header string) {
	if _, err := r.conn.Write(getCommand); err != nil {
		r.Fatal(err)
	}
	r.expect(header)
	if _, err := io.ReadFull(r.in, r.value); err != nil {
		r.Fatal(err)
	}
	r.expect("\r\n")
}

// BenchmarkRESPGet is a GET by one client, through a socket.
func BenchmarkRESPGet(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			r := newRESPClient(b, size)
			header := fmt.Sprintf("$%d\r\n", size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				r.get(header)
			}
		})
	}
}

// TestAllocationsOfRESPGet: they are those of a lease, which each GET opens, and none depends on the size. There were 35,
// and 12 when this was written.
func TestAllocationsOfRESPGet(t *testing.T) {
	if invariants.Enabled {
		t.Skip("checks of invariants allocate")
	}
	for _, size := range []int{1 << 10, 64 << 10, 3 << 20} {
		r := newRESPClient(t, size)
		header := fmt.Sprintf("$%d\r\n", size)
		allocations := testing.AllocsPerRun(200, func() { r.get(header) })
		t.Logf("%d KiB: %v allocations", size>>10, allocations)
		require.LessOrEqual(t, allocations, 14.0)
	}
}
