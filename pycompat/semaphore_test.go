//go:build linux

package pycompat_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/pycompat"
)

// A semaphore as glibc lays it out; see the table in semaphore.go.
const (
	fileSize  = 32
	oneWaiter = 1 << 32
	sharedAt  = 8
	shared    = 0x80
)

var fakes atomic.Int64

// fakeSemaphore writes the file of a semaphore as glibc has it.
func fakeSemaphore(t *testing.T, value uint32, kind byte, size int) string {
	t.Helper()
	name := fmt.Sprintf("ringcache-test-%d-%d", os.Getpid(), fakes.Add(1))
	b := make([]byte, max(size, 16))
	binary.LittleEndian.PutUint32(b, value)
	b[sharedAt] = kind
	p := filepath.Join(shmfile.DefaultDir, "sem."+name)
	require.NoError(t, os.WriteFile(p, b[:size], 0o600))
	t.Cleanup(func() { _ = os.Remove(p) })
	return "/" + name
}

// word returns the value of a semaphore and, above it, its number of waiters, as
// they are in its file.
func word(t *testing.T, s *pycompat.Semaphore) uint64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(shmfile.DefaultDir, "sem."+s.Name()[1:]))
	require.NoError(t, err)
	return binary.LittleEndian.Uint64(b)
}

func open(t *testing.T, name string) *pycompat.Semaphore {
	t.Helper()
	s, err := pycompat.OpenSemaphore(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// waitForWaiter returns when a goroutine waits for a lock that is held.
func waitForWaiter(t *testing.T, s *pycompat.Semaphore) {
	t.Helper()
	for end := time.Now().Add(time.Minute); word(t, s) != oneWaiter; {
		require.True(t, time.Now().Before(end), "no one waits")
		runtime.Gosched()
	}
}

func TestSemaphoreExcludes(t *testing.T) {
	name := fakeSemaphore(t, 1, shared, fileSize)
	var wg sync.WaitGroup
	// Atomics in a mapping are invisible to the race detector; a load and a store
	// are not an increment, so they still lose updates without the lock.
	var n atomic.Int64
	for range 4 {
		s := open(t, name)
		wg.Go(func() {
			for range 5000 {
				if err := s.Lock(context.Background()); err != nil {
					t.Error(err)
					return
				}
				n.Store(n.Load() + 1)
				if err := s.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(20000), n.Load())
	s := open(t, name)
	require.Equal(t, uint64(1), word(t, s), "free, and no waiter is left over")
}

func TestSemaphoreIsTriedWithoutWaiting(t *testing.T) {
	name := fakeSemaphore(t, 1, shared, fileSize)
	a, b := open(t, name), open(t, name)
	ok, err := a.TryLock()
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, word(t, b))
	ok, err = b.TryLock()
	require.NoError(t, err)
	require.False(t, ok)
	require.ErrorIs(t, a.Close(), pycompat.ErrBusy, "held: no one else would free it")
	require.NoError(t, a.Unlock())
	require.Equal(t, uint64(1), word(t, b), "free, and no waiter is left over")
	require.NoError(t, a.Close())
	_, err = a.TryLock()
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestSemaphoreTimeoutLeavesNoWaiter(t *testing.T) {
	s := open(t, fakeSemaphore(t, 1, shared, fileSize))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Lock(canceled), "it is free")
	require.ErrorIs(t, s.Lock(canceled), context.Canceled)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Lock(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, s.Close(), pycompat.ErrBusy, "held: no one else would free it")
	require.Zero(t, word(t, s))
	require.NoError(t, s.Unlock())
	notHeld := s.Unlock()
	require.ErrorIs(t, notHeld, fs.ErrInvalid)
	require.ErrorContains(t, notHeld, "semaphore released too many times")
	require.Equal(t, uint64(1), word(t, s))
}

func TestCancelWakesAWaiter(t *testing.T) {
	s := open(t, fakeSemaphore(t, 0, shared, fileSize))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Lock(ctx) }()
	waitForWaiter(t, s)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestSemaphoreOpenErrors(t *testing.T) {
	for _, name := range []string{"", "None", "/no-such-semaphore-here"} {
		t.Run("unnamed "+name, func(t *testing.T) {
			_, err := pycompat.OpenSemaphore(name)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, "spawn")
		})
	}
	_, err := pycompat.OpenSemaphore("/a/b")
	require.ErrorIs(t, err, shmfile.ErrName)
	require.ErrorContains(t, err, `"/a/b"`)
	for what, c := range map[string]struct{ name, text string }{
		"short":   {fakeSemaphore(t, 1, shared, 16), "has 16 bytes, want 32"},
		"private": {fakeSemaphore(t, 1, 0, fileSize), "has other contents"},
		"value 2": {fakeSemaphore(t, 2, shared, fileSize), "has other contents"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := pycompat.OpenSemaphore(c.name)
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.ErrorContains(t, err, fmt.Sprintf("%q %s", c.name, c.text))
		})
	}
}

func TestSemaphoreClose(t *testing.T) {
	s := open(t, fakeSemaphore(t, 1, shared, fileSize))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Lock(context.Background()), fs.ErrClosed)
	require.ErrorIs(t, s.Unlock(), fs.ErrClosed)
}

// TestCloseWhileAnotherWaits: closing must not keep the holder from unlocking.
func TestCloseWhileAnotherWaits(t *testing.T) {
	s := open(t, fakeSemaphore(t, 1, shared, fileSize))
	require.NoError(t, s.Lock(context.Background()))
	got := make(chan error)
	go func() { got <- s.Lock(context.Background()) }()
	waitForWaiter(t, s)
	busy := s.Close()
	require.ErrorIs(t, busy, pycompat.ErrBusy)
	require.ErrorContains(t, busy, "1 calls under way, held 1 times")
	require.NoError(t, s.Unlock())
	require.NoError(t, <-got)
	require.NoError(t, s.Unlock())
}

// TestTruncatedSemaphore would end the process with a SIGBUS.
func TestTruncatedSemaphore(t *testing.T) {
	name := fakeSemaphore(t, 1, shared, fileSize)
	s := open(t, name)
	require.NoError(t, os.Truncate(filepath.Join(shmfile.DefaultDir, "sem."+name[1:]), 0))
	require.ErrorIs(t, s.Lock(context.Background()), fault.ErrFault)
	require.ErrorIs(t, s.Unlock(), fault.ErrFault)
}

const pythonCounter = `
import multiprocessing as mp, mmap, os, sys, struct

def work(lock, path, n):
    f = os.open(path, os.O_RDWR)
    m = mmap.mmap(f, 8)
    for _ in range(n):
        with lock:
            m[0:8] = struct.pack("<q", struct.unpack("<q", m[0:8])[0] + 1)

if __name__ == "__main__":
    path, n = sys.argv[1], int(sys.argv[2])
    ctx = mp.get_context("spawn")
    lock = ctx.Lock()
    fork = mp.get_context("fork").Lock()
    print(lock._semlock.name, fork._semlock.name, flush=True)
    ps = [ctx.Process(target=work, args=(lock, path, n)) for _ in range(2)]
    [p.start() for p in ps]
    sys.stdin.readline()
    [p.join() for p in ps]
    sys.exit(sum(p.exitcode for p in ps))
`

// TestSemaphoreWithRealPython interleaves unprotected increments of two Python
// processes and two goroutines under one multiprocessing.Lock: one lost update
// would show.
func TestSemaphoreWithRealPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIP: no python3 on PATH, which this test needs as its peer")
	}
	const n = 20000
	dir := t.TempDir()
	script, counter := filepath.Join(dir, "count.py"), filepath.Join(dir, "counter")
	require.NoError(t, os.WriteFile(script, []byte(pythonCounter), 0o600))
	require.NoError(t, os.WriteFile(counter, make([]byte, 8), 0o600))
	cmd := exec.Command(python, script, counter, fmt.Sprint(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // the test failed before its end
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its own children
			_ = cmd.Wait()
		}
	})
	var name, fork string
	_, err = fmt.Fscan(out, &name, &fork)
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.Remove(filepath.Join(shmfile.DefaultDir, "sem."+name[1:])) }) // which a killed Python leaves
	_, err = pycompat.OpenSemaphore(fork)
	require.ErrorIs(t, err, fs.ErrNotExist, "a fork-context lock, %q", fork)

	f, err := os.OpenFile(counter, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	m, err := shmfile.Map(f, 8, true)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 2 {
		s := open(t, name)
		wg.Go(func() {
			for range n {
				if err := s.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				binary.LittleEndian.PutUint64(m, binary.LittleEndian.Uint64(m)+1)
				if err := s.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	_, _ = in.Write([]byte("\n"))
	require.NoError(t, cmd.Wait())
	require.Equal(t, uint64(4*n), binary.LittleEndian.Uint64(m))
}
