package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenNoLinks opens a file for reading. In this one system call the kernel refuses links anywhere in the
// path, and does not wait for a pipe.
func (t *Tree) OpenNoLinks(p string) (*os.File, error) {
	fd, err := t.openat2(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return t.OpenByRoot(p) // an old kernel, or a filter of a container
	case err != nil:
		return nil, err
	}
	return os.NewFile(uintptr(fd), p), nil
}

// isFolder returns nil if a path is a folder, and ErrForeign if it is a link or below one.
func (t *Tree) isFolder(p string) error {
	fd, err := t.openat2(p, unix.O_PATH|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return t.lstatFolder(p)
	case err != nil:
		return err
	}
	return unix.Close(fd)
}

// openat2 opens a path below the root without following links. It returns ErrForeign for a link.
func (t *Tree) openat2(p string, flags uint64) (fd int, err error) {
	conn, err := t.Dir.SyscallConn()
	if err != nil {
		return -1, err
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd = -1
	var failed error
	err = conn.Control(func(dir uintptr) {
		for range 100 { // EAGAIN: another process renames a part of the path at the same time
			fd, failed = unix.Openat2(int(dir), p, &how)
			if !errors.Is(failed, unix.EINTR) && !errors.Is(failed, unix.EAGAIN) {
				break
			}
		}
	})
	switch {
	case err != nil: // the folder is closed
		return -1, fmt.Errorf("%w: %w", fs.ErrClosed, err)
	case errors.Is(failed, unix.ELOOP), errors.Is(failed, unix.ENXIO):
		return -1, fmt.Errorf("%w: %s is a link, below a link, or not a regular file", ErrForeign, p)
	case failed != nil:
		return -1, &fs.PathError{Op: "openat2", Path: p, Err: failed}
	}
	return fd, nil
}

// OwnedByOther reports whether a folder belongs to another user, and this process is not root.
func OwnedByOther(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Geteuid() != 0 && int(s.Uid) != os.Geteuid()
}

// Sparse reports a large file with hardly any blocks on the medium. A file system that reports no blocks at
// all does not count them.
func Sparse(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Size() >= minSparse && s.Blocks > 0 && s.Blocks*512 < info.Size()/sparseShare
}

// BlockSize returns the block to which the file system rounds up files.
func BlockSize(dir *os.File) int64 {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &s); err != nil || s.Bsize < 512 || s.Bsize > 1<<20 {
		return 4096
	}
	return int64(s.Bsize)
}

// FileSystemSize returns the size of the file system of a folder, in bytes; 0 is unknown.
func FileSystemSize(dir *os.File) int64 {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &s); err != nil || s.Bsize <= 0 || s.Blocks > math.MaxInt64/uint64(s.Bsize) {
		return 0
	}
	return int64(s.Blocks) * int64(s.Bsize)
}
