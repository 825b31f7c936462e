package tree

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Fresh is what the file system has about a regular file now.
type Fresh struct {
	Size     int64
	Modified time.Time
	Inode    uint64
}

// Stat asks the file system itself about a regular file, past the caches of attributes that a network file system has.
// Anything else than a regular file is ErrForeign.
func (t *Tree) Stat(p string) (Fresh, error) {
	var s unix.Statx_t
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_FORCE_SYNC
	const wanted = unix.STATX_TYPE | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_INO
	var err error
	for {
		if err = unix.Statx(int(t.Dir.Fd()), p, flags, wanted, &s); err != unix.EINTR { //nolint:errorlint // a system call returns it as it is
			break
		}
	}
	switch {
	case err != nil:
		return Fresh{}, &fs.PathError{Op: "statx", Path: p, Err: err}
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return Fresh{}, ErrForeign
	}
	return Fresh{int64(s.Size), time.Unix(s.Mtime.Sec, int64(s.Mtime.Nsec)), s.Ino}, nil
}

// Touch sets the times of an open file to the present. A file server uses its own clock for that.
func Touch(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	err = conn.Control(func(fd uintptr) {
		// No times at all are the present, for whoever may write to the file. unix.Futimes would set that of this machine.
		_, _, errno = unix.Syscall6(unix.SYS_UTIMENSAT, fd, 0, 0, 0, 0, 0)
	})
	if err == nil && errno != 0 {
		err = &fs.PathError{Op: "utimensat", Path: f.Name(), Err: errno}
	}
	return err
}
