package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
)

// The handshake's default endpoint is a port of the machine: everyone there can connect,
// and whoever does must not keep the engine out.

// TestIdlePeersKeepEngineOut: connections that say nothing, more of them than the handshake keeps.
func TestIdlePeersKeepEngineOut(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true})
	for i := range 400 {
		p, err := enginetest.Dealer(r.ctx, r.o.Handshake, fmt.Sprint("idle", i))
		if err != nil {
			break // turned away
		}
		defer p.Close()
	}
	require.NoError(t, r.start())
	r.ask(1, "a")
}

// TestClaimedIdentityKeepsEngineOut: peers that come and go with the engine's identity.
func TestClaimedIdentityKeepsEngineOut(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true})
	stop := rogues(6, func(int) {
		if p, err := enginetest.Dealer(r.ctx, r.o.Handshake, "\x00\x00"); err == nil {
			p.Close()
		}
	})
	defer stop()
	require.NoError(t, r.start())
	r.ask(1, "a")
}

// TestEveryHelloIsAnswered: a connection gets one answer, however often it says hello, so
// that one that does not read them can't hold up the handshake.
func TestEveryHelloIsAnswered(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true})
	started := make(chan error, 1)
	go func() { started <- r.Start(r.ctx) }()
	deaf := dealer(t, r, r.o.Handshake, "deaf")
	say(t, deaf, "HELLO")
	_, err := deaf.Recv()
	require.NoError(t, err)
	for range 1000 {
		say(t, deaf, "HELLO")
	}
	r.e, err = enginetest.Start(r.ctx, r.o)
	require.NoError(t, err)
	require.NoError(t, <-started)
	r.ask(1, "a")
	require.NoError(t, r.Close(r.ctx))
	answers := 0
	for {
		if _, err := deaf.Recv(); err != nil {
			break
		}
		answers++
	}
	require.Zero(t, answers)
}

// TestHandshakeFile: the handshake may be a file, which only the user can open.
func TestHandshakeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handshake")
	r := newRig(t, setup{client: func(o *engine.Options) { o.Handshake = "ipc://" + path }})
	require.Equal(t, engine.Address{Handshake: "ipc://" + path}, r.Address())
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, st.Mode().Perm()&0o077)
	r.ask(1)
}

// rogues calls f in n goroutines until stop is called.
func rogues(n int, f func(int)) (stop func()) {
	var wait sync.WaitGroup
	done := make(chan struct{})
	for i := range n {
		wait.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f(i)
				}
			}
		})
	}
	return func() {
		close(done)
		wait.Wait()
	}
}
