package shmfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// TryLock takes the lock on the whole file, without waiting. The kernel releases it when the
// last descriptor of this opening is closed, also when the process is killed.
func TryLock(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			return true, nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return false, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}

// Locked reports whether another opening of the file has the lock of TryLock. A lock that is free is taken for a
// moment, shared: any number of processes may ask at a time, and none takes another for an owner.
func Locked(f *os.File) (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err {
		case nil:
			return false, Unlock(f)
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return true, nil
		default:
			return false, fmt.Errorf("asking for the lock of %s: %w", f.Name(), err)
		}
	}
}

// WaitLock waits for the lock on the whole file, through an opening of its own, until the context
// ends. unlock releases the lock.
func WaitLock(ctx context.Context, f *os.File) (unlock func(), err error) {
	// By its descriptor: f may have no name, or one that another file has by now.
	own, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, err
	}
	if err := waitLock(ctx, own); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return func() { _ = errors.Join(Unlock(own), own.Close()) }, nil // closing alone releases it, if later
}

// waitLock tries every millisecond: flock itself can't be interrupted by a context.
func waitLock(ctx context.Context, f *os.File) error {
	for {
		if ok, err := TryLock(f); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// CheckPinnable reports whether the pages of f can be pinned for long: they can in memory, and
// not on a disk, whose file system must notice writes to them.
func CheckPinnable(f *os.File) error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return err
	}
	if s.Type != unix.TMPFS_MAGIC && s.Type != unix.HUGETLBFS_MAGIC && s.Type != unix.RAMFS_MAGIC {
		return fmt.Errorf("%w: the file system (type %#x) is not tmpfs or hugetlbfs, and pages of others can't be pinned; keep the segment in %s", errors.ErrUnsupported, s.Type, DefaultDir)
	}
	return nil
}

// Unlock releases the lock on the whole file at once. Closing f releases it only when no
// other descriptor of this opening is left, and a child process has one between fork and
// exec.
func Unlock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return fmt.Errorf("unlocking %s: %w", f.Name(), err)
	}
	return nil
}

// TryLockByte takes the lock on one byte of the file, without waiting. It is independent of
// TryLock's, and the kernel releases it in the same cases. The lock belongs to the opening f:
// taking it again through f succeeds.
func TryLockByte(f *os.File, offset int64) (bool, error) {
	return setByte(f, offset, unix.F_WRLCK)
}

// ByteLocked reports whether another opening of the file has the lock on one byte. f may be open for reading only.
func ByteLocked(f *os.File, offset int64) (bool, error) {
	for {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: offset, Len: 1}
		switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err {
		case nil:
			return l.Type != unix.F_UNLCK, nil
		case unix.EINTR:
		default:
			return false, fmt.Errorf("asking for the lock of byte %d of %s: %w", offset, f.Name(), err)
		}
	}
}

// UnlockByte releases the lock on one byte.
func UnlockByte(f *os.File, offset int64) error {
	_, err := setByte(f, offset, unix.F_UNLCK)
	return err
}

func setByte(f *os.File, offset int64, kind int16) (bool, error) {
	for {
		l := unix.Flock_t{Type: kind, Start: offset, Len: 1}
		switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err {
		case nil:
			return true, nil
		case unix.EINTR:
		case unix.EAGAIN, unix.EACCES:
			return false, nil
		default:
			return false, fmt.Errorf("locking byte %d of %s: %w", offset, f.Name(), err)
		}
	}
}

// CreateUnnamed makes a file, 0600, of exactly size bytes, all of them allocated, so that a
// lack of memory is a [*SpaceError] here and not a SIGBUS later. The file has no name: if the
// process ends before [Link], nothing of it is left.
func CreateUnnamed(dir string, size int64) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making an unnamed file in %s: %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), dir+"/(unnamed)")
	// Chmod, because the umask may have removed the owner's bits.
	if err := errors.Join(f.Chmod(0o600), allocate(f, size)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Link gives an unnamed file its name. It fails with fs.ErrExist if there is a file of that
// name.
func Link(f *os.File, path string) error {
	err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, path,
		unix.AT_SYMLINK_FOLLOW)
	if err != nil {
		return &os.PathError{Op: "link", Path: path, Err: err}
	}
	return nil
}

// Identity returns the device and the inode of the file.
func Identity(f *os.File) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), st.Ino, nil
}
