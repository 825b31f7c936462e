package enginetest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestUnansweredStartLeavesNoGoroutine: a frontend that accepts, and says nothing, does not
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

const hangGuard = 2 * time.Minute
