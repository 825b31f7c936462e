package lookup

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// workerVariable has the path of the socket, in a process that is a worker.
const workerVariable = "RINGCACHE_LOOKUP_WORKER"

var kills = flag.Int("lookup.kills", 5, "TestKilledWorker kills so many workers")

// serveUntilKilled is a worker in a process of its own. What is stored is all tokens but the last chunk.
func serveUntilKilled(path string) {
	s, err := NewServer(ServerOptions{
		Lookup: func(_ context.Context, r Request) (int, error) {
			return 4 * (len(r.Hashes) - 1), nil
		},
	})
	if err != nil {
		panic(err)
	}
	l, err := Listen(path)
	if err != nil {
		panic(err)
	}
	fmt.Println("listens")
	panic(s.Serve(l))
}

// startWorker starts a worker, and returns when it listens.
func startWorker(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test itself
	c.Env = append(os.Environ(), workerVariable+"="+path)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "listens\n", line)
	return c
}

// TestKilledWorker: a scheduler whose worker is killed at any moment gets an error or the right answer, never
// another one, and its second look-up at the latest finds the worker that came in its place.
func TestKilledWorker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := connect(t, ClientOptions{Paths: []string{path}, Database: newDatabase(t, chunksOf4)})
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it chooses moments
	answers, failed := 0, 0
	// ask looks up some tokens, and reports whether there was an answer.
	ask := func() bool {
		n := 4 * (1 + rng.IntN(50))
		stored, err := c.Lookup(t.Context(), "r", tokens(n), "")
		if err != nil {
			failed++
			return false
		}
		answers++
		require.Equal(t, n-4, stored)
		return true
	}
	for range *kills {
		worker := startWorker(t, path)
		if !ask() {
			require.True(t, ask(), "the second look-up finds the new worker")
		}
		killed := make(chan error, 1)
		wait := time.Duration(rng.IntN(2000)) * time.Microsecond
		go func() {
			time.Sleep(wait) // any moment will do
			killed <- worker.Process.Kill()
			_ = worker.Wait() // it was killed
			close(killed)
		}()
		for ask() {
		}
		require.NoError(t, <-killed)
		<-killed
		require.False(t, ask(), "nobody listens")
	}
	t.Logf("%d kills: %d answers, all right; %d look-ups failed", *kills, answers, failed)
}
