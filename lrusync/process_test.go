package lrusync_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/lossypair"
	"github.com/ringcache/ringcache/lrusync"
)

// receiverAt names the socket of a test process that is the engine.
const receiverAt = "RINGCACHE_TEST_RECEIVER_AT"

var twoProcesses = lrusync.Options{Capacity: 300}

func TestMain(m *testing.M) {
	if path := os.Getenv(receiverAt); path != "" {
		if err := receive(path); err != nil {
			fmt.Fprintln(os.Stderr, "receiver:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(goldentest.ReadOnlyTable(m).Run())
}

// receive is the engine's process. It ends with its socket.
func receive(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := lrusync.NewReceiver[[]byte](twoProcesses)
	if err != nil {
		return err
	}
	return lossypair.Serve(conn, r)
}

// startReceiver starts the other process, which the test reaps at its end.
func startReceiver(t *testing.T, rnd *rand.Rand) *lossypair.Link {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	defer ln.Close()
	require.NoError(t, ln.SetDeadline(time.Now().Add(time.Minute)))
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, kill := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), receiverAt+"="+path)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	conn, err := ln.Accept()
	if err != nil {
		kill()
		t.Fatalf("the receiver did not start: %v, %v", err, cmd.Wait())
	}
	l := lossypair.NewLink(conn, rnd)
	t.Cleanup(func() {
		defer kill()
		assert.NoError(t, conn.(*net.UnixConn).CloseWrite()) // go on, to leave no process behind
		assert.ErrorIs(t, l.Err(), io.EOF, "the receiver answers until it is told to end")
		assert.NoError(t, cmd.Wait())
		assert.NoError(t, conn.Close())
	})
	return l
}

// startPair returns a frontend whose engine is another process.
func startPair(t *testing.T, rnd *rand.Rand) (*lossypair.Frontend, *lossypair.Link) {
	s, err := lrusync.NewSender(twoProcesses)
	require.NoError(t, err)
	l := startReceiver(t, rnd)
	return &lossypair.Frontend{
		Sender: s, Link: func() (*lossypair.Link, error) { return l, nil },
		Payload: func(key string, size int64) []byte { return bytes.Repeat([]byte(key), int(size))[:size] },
	}, l
}

func requireEqualEnds(t *testing.T, f *lossypair.Frontend) {
	t.Helper()
	require.NoError(t, f.Compare())
	here, _ := f.Sender.Contents()
	require.NotEmpty(t, here)
}

// runClients has 8 clients make requests at the same time.
func runClients(t *testing.T, f *lossypair.Frontend, requests int) {
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 7))
			for i := range requests {
				items := make([]lrusync.Item, 1+rnd.IntN(4))
				for i := range items {
					k := rnd.IntN(40)
					items[i] = lrusync.Item{Key: fmt.Sprint("k", k), Size: int64(1 + k), HasData: rnd.IntN(2) == 0}
				}
				if err := f.Do(ctx, items); err != nil {
					t.Errorf("client %d, request %d: %v", c, i, err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// A frontend with many goroutines and an engine in another process stay equal,
// and nothing is ever missing.
func TestTwoProcesses(t *testing.T) {
	f, _ := startPair(t, nil)
	const requests = 500
	runClients(t, f, requests)
	requireEqualEnds(t, f)
	require.Zero(t, f.Drifts.Load())
	require.Zero(t, f.Resent.Load(), "missing, though nothing was lost")
	require.Positive(t, f.Omitted.Load())
	t.Logf("%d requests, %d items named only", 8*requests, f.Omitted.Load())
}

// The same over a link that loses requests and lets them overtake each other:
// every drift is found and repaired, and every request served.
func TestTwoProcessesWithALossyLink(t *testing.T) {
	f, l := startPair(t, rand.New(rand.NewPCG(1, 2)))
	const requests = 500
	runClients(t, f, requests)
	l.Lossless()
	for range 2 { // the first shows what the last loss has left
		require.NoError(t, f.Do(ctx, []lrusync.Item{{Key: "k1", Size: 2, HasData: true}}))
	}
	requireEqualEnds(t, f)
	dropped, swapped := l.Losses()
	for what, n := range map[string]int64{
		"dropped": int64(dropped), "swapped": int64(swapped),
		"drifts": f.Drifts.Load(), "repairs": f.Repairs.Load(), "omitted": f.Omitted.Load(),
	} {
		require.Positive(t, n, what)
	}
	t.Logf("%d requests: %d dropped, %d overtaken, %d reports of drift, %d repairs, %d sent again, %d items named only",
		8*requests, dropped, swapped, f.Drifts.Load(), f.Repairs.Load(), f.Resent.Load(), f.Omitted.Load())
}
