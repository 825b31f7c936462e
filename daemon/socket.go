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
		return makeSocket(ctx, path, log)
	}
	s := &socket{}
	for _, l := range passed {
		u, ok := l.(*net.UnixListener)
		if !ok {
			err = fmt.Errorf("the service manager passed a socket that is no stream socket of a path: use ListenStream=%s in its socket unit", path)
			break
		}
		if name := u.Addr().String(); name != path {
			log.Warn("the socket of the service manager is another one than the setting", "socket", name, "setting", path)
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

// makeSocket makes a socket of mode 0600, in place of one that a dead process left. A lock on a file beside the socket is what
// daemons agree by; programs of others are asked whether they listen.
func makeSocket(ctx context.Context, path string, log *slog.Logger) (_ *socket, err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the socket: %w", err)
	}
	if info, err := os.Stat(folder); err == nil && info.Mode()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		log.Warn("other users can replace the socket, since they may write to its folder: take that right away", "folder", folder, "mode", info.Mode().String())
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
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

// lockSuffix is what the lock of a socket has behind its path.
const lockSuffix = ".lock"

// lockSocket takes the lock beside a socket. The file stays, since a lock on a file without a name would lock nothing.
func lockSocket(path string) (*os.File, error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
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
		err = fmt.Errorf("another daemon%s has the socket %s: end it, or give this one another socket: %w", writtenPID(b[:n]), path, fs.ErrExist)
	}
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

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
		return false, fmt.Errorf("%s is no socket, but %v: remove it, or give another path: %w", path, kindOf(info), fs.ErrExist)
	}
	conn, err := net.DialTimeout("unix", path, 10*time.Second)
	switch {
	case err == nil:
		return false, errors.Join(fmt.Errorf("another process listens at %s: end it, or give another path: %w", path, fs.ErrExist), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	// Such as a queue that is full: somebody lives.
	return false, fmt.Errorf("whether a process listens at %s can't be told: end it, or give another path: %w", path, err)
}

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
	if info, err := os.Lstat(s.path); err != nil || !os.SameFile(info, s.file) || !info.ModTime().Equal(s.file.ModTime()) {
		return fmt.Errorf("the socket %s was removed or replaced: restart the daemon", s.path)
	}
	return nil
}

// close removes the socket, if it is still this process's, and its lock. The listeners are closed by then, or are closed here.
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
		errs = append(errs, shmfile.Unlock(s.lock), s.lock.Close())
	}
	return errors.Join(errs...)
}
