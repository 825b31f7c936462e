package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// socket is where clients connect.
// See docs/decisions.md, "The segment's lock comes first, and a lock beside the socket".
type socket struct {
	listeners []net.Listener
	path      string      // of a socket that this process made; empty if systemd did
	file      os.FileInfo // what path names
	lock      *os.File
}

// openSocket returns the sockets that systemd has opened for this process, or makes one.
func openSocket(ctx context.Context, path string, log *slog.Logger) (*socket, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("the sockets of the service manager: %w", err)
	}
	if len(passed) == 0 {
		return makeSocket(ctx, path)
	}
	s := &socket{}
	for _, l := range passed {
		u, ok := l.(*net.UnixListener)
		if !ok {
			err = fmt.Errorf("the service manager passed a socket that is no stream socket of a path: use ListenStream=%s in its socket unit", path)
			break
		}
		if name := u.Addr().String(); name != path {
			log.Warn("the socket of the service manager is another one than the setting", "socket", name,
				"setting", path)
		}
		s.listeners = append(s.listeners, u)
	}
	if err != nil {
		for _, l := range passed {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
		return nil, err
	}
	return s, nil
}

// makeSocket makes a socket of mode 0600, in place of one that a dead process left. A lock on a file beside
// the socket is what daemons agree by; programs of others are asked whether they listen.
func makeSocket(ctx context.Context, path string) (_ *socket, err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the socket: %w; make it for this user, or give another path by socket",
			err)
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlockSocket(lock))
		}
	}()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	lc.Control = func(_, _ string, c syscall.RawConn) error { return restrict(c) }
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("the socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // another daemon's may be there by then
	err = os.Chmod(path, 0o600)
	var file os.FileInfo
	if err == nil {
		file, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the socket: %w", err), l.Close())
	}
	return &socket{listeners: []net.Listener{l}, path: path, file: file, lock: lock}, nil
}

// replaceable reports whether other users can replace what is in a folder, and its mode.
func replaceable(folder string) (fs.FileMode, bool) {
	info, err := os.Stat(folder)
	if err != nil {
		return 0, false
	}
	return info.Mode(), info.Mode()&0o022 != 0 && info.Mode()&os.ModeSticky == 0
}

// lockSuffix is what the lock of a socket has behind its path.
const lockSuffix = ".lock"

// lookTime is longer than SweepSocket has a lock that it only looks at.
const lookTime = 200 * time.Millisecond

// lockSocket takes the lock beside a socket, and writes the process into it, for people.
func lockSocket(path string) (*os.File, error) {
	start := time.Now()
	for range 100 {
		f, err := tryLockSocket(path, os.O_CREATE)
		if errors.Is(err, errLocked) && time.Since(start) < lookTime {
			time.Sleep(lookTime / 50)
			continue
		}
		if err != nil {
			return nil, err
		}
		if shmfile.Same(f, path+lockSuffix) {
			err := f.Truncate(0)
			if err == nil {
				_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("the lock of the socket: %w", err), f.Close())
			}
			return f, nil
		}
		// Somebody removed it before it was locked here: a lock on a file without a name locks nothing.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the lock of the socket, %s, is being replaced all the time", path+lockSuffix)
}

// tryLockSocket opens and locks the file of the lock, which may have lost its name by then.
func tryLockSocket(path string, create int) (*os.File, error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|create|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the lock of the socket: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: remove it: %w", f.Name(), fs.ErrInvalid)
	}
	var free bool
	if err == nil {
		free, err = shmfile.TryLock(f)
	}
	if err == nil && !free {
		b := make([]byte, 20)
		n, _ := f.ReadAt(b, 0) // nothing depends on it
		err = fmt.Errorf("another daemon%s has the socket %s: end it, or give this one another socket: %w",
			writtenPID(b[:n]), path, errLocked)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// errLocked is an fs.ErrExist: a living daemon has the lock of a socket.
var errLocked = fmt.Errorf("its lock is held: %w", fs.ErrExist)

// unlockSocket removes the file of a lock that this process has, and gives the lock up.
func unlockSocket(f *os.File) error {
	var err error
	if shmfile.Same(f, f.Name()) {
		err = os.Remove(f.Name())
	}
	return errors.Join(err, shmfile.Unlock(f), f.Close())
}

// SweepSocket looks at a socket, and with remove removes one that a dead daemon left, with its lock. The
// state is "none", "alive", "stale" or "removed". What is no socket is an error, and stays.
func SweepSocket(path string, remove bool) (state string, err error) {
	_, lockErr := os.Lstat(path + lockSuffix)
	take := func(path string) (*os.File, error) { return tryLockSocket(path, 0) }
	if remove {
		take = lockSocket // nobody else may make the socket meanwhile
	}
	lock, err := take(path)
	switch {
	case errors.Is(err, errLocked):
		return "alive", nil
	case errors.Is(err, fs.ErrNotExist): // of the lock, or of its folder
	case err != nil:
		return "", err
	case remove:
		defer func() { err = errors.Join(err, unlockSocket(lock)) }()
	default:
		defer func() { err = errors.Join(err, shmfile.Unlock(lock), lock.Close()) }()
	}
	stale, err := isStale(path)
	switch {
	case errors.Is(err, errListens):
		return "alive", nil
	case err != nil:
		return "", err
	case !stale && lockErr != nil:
		return "none", nil
	case !remove:
		return "stale", nil
	}
	if stale {
		err = os.Remove(path)
	}
	return "removed", err
}

// writtenPID is what the lock of a socket has, as a part of a sentence.
func writtenPID(b []byte) string {
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(", process %d by its own account,", pid)
}

// removeStale removes a socket to which nobody listens. The caller has the lock of the path.
func removeStale(path string) error {
	stale, err := isStale(path)
	if err != nil || !stale {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a socket that a dead process left: %w", err)
	}
	return nil
}

// isStale reports whether a path is a socket to which nobody listens. A path with anything else is an error.
func isStale(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the socket: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return false, fmt.Errorf("%s is no socket, but %v: remove it, or give another path: %w",
			path, kindOf(info), fs.ErrExist)
	}
	conn, err := net.DialTimeout("unix", path, 10*time.Second)
	switch {
	case err == nil:
		return false, errors.Join(
			fmt.Errorf("%w at %s: end it, or give another path: %w", errListens, path, fs.ErrExist), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	// Such as a queue that is full: somebody lives.
	return false, fmt.Errorf("whether a process listens at %s can't be told: end it, or give another path: %w",
		path, err)
}

var errListens = errors.New("another process listens")

func kindOf(info os.FileInfo) string {
	switch {
	case info.Mode().IsRegular():
		return "a file"
	case info.IsDir():
		return "a folder"
	case info.Mode()&os.ModeSymlink != 0:
		return "a link"
	}
	return info.Mode().Type().String()
}

// check reports that clients can't find the socket any more.
func (s *socket) check() error {
	if s.path == "" {
		return nil
	}
	// A new file may have the inode of one that was removed.
	if info, err := os.Lstat(s.path); err != nil || !os.SameFile(info, s.file) ||
		!info.ModTime().Equal(s.file.ModTime()) {
		return fmt.Errorf("the socket %s was removed or replaced: restart the daemon", s.path)
	}
	return nil
}

// close removes the socket, if it is still this process's, and its lock. The listeners are closed by then, or
// are closed here.
func (s *socket) close() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.path != "" {
		if s.check() == nil {
			errs = append(errs, os.Remove(s.path))
		}
		errs = append(errs, unlockSocket(s.lock))
	}
	return errors.Join(errs...)
}
