package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openNoLinks opens a file for reading by one call, in which the kernel refuses links anywhere in the path, and
// does not wait for a pipe.
func (f *folder) openNoLinks(p string) (*os.File, error) {
	conn, err := f.dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd := -1
	var failed error
	err = conn.Control(func(dir uintptr) {
		for range 100 { // EAGAIN: a rename in the path at the same time
			fd, failed = unix.Openat2(int(dir), p, &how)
			if !errors.Is(failed, unix.EINTR) && !errors.Is(failed, unix.EAGAIN) {
				break
			}
		}
	})
	switch {
	case err != nil: // the folder is closed
		return nil, fmt.Errorf("%w: %w", fs.ErrClosed, err)
	case errors.Is(failed, unix.ENOSYS), errors.Is(failed, unix.EPERM):
		return f.openByRoot(p) // an old kernel, or a filter of a container
	case errors.Is(failed, unix.ELOOP), errors.Is(failed, unix.ENXIO):
		return nil, fmt.Errorf("%w: %s is a link, below one, or no regular file", errStranger, p)
	case failed != nil:
		return nil, &fs.PathError{Op: "openat2", Path: p, Err: failed}
	}
	return os.NewFile(uintptr(fd), p), nil
}

// ownedByOther reports whether a folder belongs to another user, for whom this process can't speak.
func ownedByOther(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Geteuid() != 0 && int(s.Uid) != os.Geteuid()
}

// hollow reports a large file that has hardly any blocks. None at all means that the file system does not tell.
func hollow(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Size() >= leastHollow && s.Blocks > 0 && s.Blocks*512 < info.Size()/hollowShare
}

// blockSize is what the file system rounds files up to.
func blockSize(dir *os.File) int64 {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &s); err != nil || s.Bsize < 512 || s.Bsize > 1<<20 {
		return 4096
	}
	return int64(s.Bsize)
}
