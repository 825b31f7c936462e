package enginetest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestUnansweredStartLeavesNoGoroutine: a frontend that accepts, and sends nothing, does not
// keep Start beyond its context, and nothing runs on when Start has returned.
func TestUnansweredStartLeavesNoGoroutine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Options{Handshake: "tcp://" + l.Addr().String()})
		ended <- err
	}()
	c := <-accepted
	cancel()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(hangGuard):
		t.Error("Start did not end with its context")
	}
	c.Close()
	goleak.VerifyNone(t)
}

// TestTurnedAwayConnectsAgain: a connection that the frontend turned away, as it does with
// a greeting that comes too late, is no end of the stand-in. Any other failure is.
func TestTurnedAwayConnectsAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tried := 0
	connect := func() (int, error) {
		if tried++; tried%3 != 0 {
			return 0, fmt.Errorf("%w: no greeting", errTurnedAway)
		}
		return tried, nil
	}
	n, err := again(ctx, connect)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	_, err = again(ctx, func() (int, error) { tried++; return 0, net.ErrClosed })
	require.ErrorIs(t, err, net.ErrClosed)
	require.Equal(t, 4, tried)
	cancel()
	_, err = again(ctx, connect)
	require.ErrorIs(t, err, errTurnedAway)
	require.Equal(t, 5, tried)
}

const hangGuard = 2 * time.Minute
