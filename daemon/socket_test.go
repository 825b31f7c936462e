package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// socketPath is a path that is short enough, in a folder that is there.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rc")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "s")
	require.Less(t, len(path), 100)
	return path
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func listen(t *testing.T, path string) *socket {
	t.Helper()
	s, err := makeSocket(context.Background(), path)
	require.NoError(t, err)
	return s
}

func TestSocketAndItsFolder(t *testing.T) {
	path := filepath.Join(filepath.Dir(socketPath(t)), "new", "deep", "s")
	s := listen(t, path)
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	}
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, s.check())
	require.NoError(t, s.close())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestSocketOfALivingDaemonStays: neither that of a daemon, which has the lock, nor that of another program.
func TestSocketOfALivingDaemonStays(t *testing.T) {
	path := socketPath(t)
	s := listen(t, path)
	before, err := os.Lstat(path)
	require.NoError(t, err)
	_, err = makeSocket(context.Background(), path)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "another daemon, process ")
	require.ErrorContains(t, err, "end it, or give this one another socket")
	after, err := os.Lstat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.NoError(t, s.close())

	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	_, err = makeSocket(context.Background(), path)
	require.ErrorContains(t, err, "another process listens at "+path)
	conn, err := net.Dial("unix", path)
	require.NoError(t, err, "it still listens")
	require.NoError(t, conn.Close())
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.NoError(t, listen(t, path).close(), "it is stale now")
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := socketPath(t)
	s := listen(t, path)
	// As after SIGKILL: the names stay, listener and lock are gone.
	require.NoError(t, s.listeners[0].Close())
	require.NoError(t, shmfile.Unlock(s.lock))
	require.NoError(t, s.lock.Close())
	require.FileExists(t, path)
	next := listen(t, path)
	require.NoError(t, next.check())
	require.Error(t, s.check(), "the path names another socket")
	s.listeners, s.lock = nil, nil

	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, next.close())
}

// TestWhatIsNoSocketStays: whatever else has the name is not removed.
func TestWhatIsNoSocketStays(t *testing.T) {
	path := socketPath(t)
	target := filepath.Join(filepath.Dir(path), "target")
	require.NoError(t, os.WriteFile(target, []byte("mine"), 0o600))
	for name, put := range map[string]func() error{
		"a file":   func() error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a folder": func() error { return os.Mkdir(path, 0o700) },
		"a link":   func() error { return os.Symlink(target, path) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, put())
			_, err := makeSocket(context.Background(), path)
			require.ErrorContains(t, err, "is no socket, but "+name)
			_, err = os.Lstat(path)
			require.NoError(t, err)
			require.NoError(t, os.Remove(path))
		})
	}
	t.Run("datagrams", func(t *testing.T) {
		l, err := net.ListenPacket("unixgram", path)
		require.NoError(t, err)
		_, err = makeSocket(context.Background(), path)
		require.ErrorContains(t, err, "can't be told")
		_, err = os.Lstat(path)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NoError(t, os.RemoveAll(path))
	})
	t.Run("a link as the lock", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(path+lockSuffix))
		require.NoError(t, os.Symlink(target, path+lockSuffix))
		_, err := makeSocket(context.Background(), path)
		require.Error(t, err)
		b, err := os.ReadFile(target)
		require.NoError(t, err)
		require.Equal(t, "mine", string(b))
	})
}

// TestSocketThatWasReplacedIsNotRemoved: the end of a daemon removes its own socket, not another's.
func TestSocketThatWasReplacedIsNotRemoved(t *testing.T) {
	path := socketPath(t)
	s := listen(t, path)
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, s.check(), "was removed or replaced")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, s.close())
	require.FileExists(t, path)
}

func TestSocketThatCantBe(t *testing.T) {
	path := socketPath(t)
	_, err := makeSocket(context.Background(), path+strings.Repeat("x", 120))
	require.Error(t, err)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = makeSocket(context.Background(), filepath.Join(path, "s"))
	require.ErrorContains(t, err, "the folder of the socket")
}

func TestWrittenPID(t *testing.T) {
	require.Equal(t, ", process 17 by its own account,", writtenPID([]byte("17\n")))
	for _, s := range []string{"", "x", "-1", "0", "17\x1b[2J"} {
		require.Empty(t, writtenPID([]byte(s)))
	}
}

// TestLockWithoutNameLocksNothing: a daemon that ends removes the lock which another one has just opened.
func TestLockWithoutNameLocksNothing(t *testing.T) {
	path := socketPath(t)
	first, err := tryLockSocket(path, os.O_CREATE)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path+lockSuffix))
	second, err := lockSocket(path)
	require.NoError(t, err, "it is another file")
	require.NoError(t, unlockSocket(first))
	require.FileExists(t, path+lockSuffix, "it is the second one's")
	_, err = lockSocket(path)
	require.ErrorIs(t, err, errLocked)
	require.NoError(t, unlockSocket(second))
	require.NoFileExists(t, path+lockSuffix)
}

// TestOneHasTheLock, although each one that ends removes the file which others have open.
func TestOneHasTheLock(t *testing.T) {
	path := socketPath(t)
	var have, had atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 300 {
				f, err := lockSocket(path)
				if errors.Is(err, errLocked) {
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				assert.Equal(t, int32(1), have.Add(1))
				had.Add(1)
				runtime.Gosched()
				have.Add(-1)
				assert.NoError(t, unlockSocket(f))
			}
		})
	}
	all.Wait()
	require.Greater(t, had.Load(), int32(100))
}

func TestSweepSocket(t *testing.T) {
	path := socketPath(t)
	want := func(remove bool, state string) {
		t.Helper()
		got, err := SweepSocket(path, remove)
		require.NoError(t, err)
		require.Equal(t, state, got)
	}
	want(true, "none")
	s := listen(t, path)
	want(true, "alive")
	require.NoError(t, s.check())
	require.NoError(t, s.listeners[0].Close())
	want(true, "alive") // it has the lock
	require.FileExists(t, path)
	require.NoError(t, s.lock.Close())
	want(false, "stale")
	require.FileExists(t, path)
	want(true, "removed")
	want(true, "none")
	require.NoFileExists(t, path+lockSuffix)

	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	want(true, "alive") // another program's
	require.NoError(t, l.Close())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = SweepSocket(path, true)
	require.ErrorContains(t, err, "is no socket, but a file")
	require.FileExists(t, path)
}
