package accept

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// script is a listener that returns what a test says, one after the other.
type script struct {
	net.Listener
	results []any // a net.Conn or an error
}

func (s *script) Addr() net.Addr { return &net.UnixAddr{Name: "script", Net: "unix"} }

func (s *script) Accept() (net.Conn, error) {
	r := s.results[0]
	s.results = s.results[1:]
	if err, ok := r.(error); ok {
		return nil, err
	}
	return r.(net.Conn), nil
}

// TestLoop: errors that pass cost time and no connection, and the end is told from a failure.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		full := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		closed := &net.OpError{Op: "accept", Err: net.ErrClosed}
		for _, ended := range []bool{false, true} {
			var taken []net.Conn
			var lost []error
			l := &script{results: []any{a, full, full, full, full, full, full, b, full, closed}}
			start := time.Now()
			err := Loop(l, func() bool { return ended && len(l.results) == 0 },
				func(c net.Conn) { taken = append(taken, c) }, func(err error) { lost = append(lost, err) })
			require.Equal(t, []net.Conn{a, b}, taken)
			require.Len(t, lost, 7)
			require.ErrorIs(t, lost[0], syscall.EMFILE)
			require.Equal(t, 260*time.Millisecond, time.Since(start), "5, 10, 20, 40, 80, 100, and 5 again")
			if ended {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, net.ErrClosed)
				require.ErrorContains(t, err, "the listener script was closed")
			}
		}
		require.NoError(t, errors.Join(a.Close(), b.Close()))
	})
}
