package shmfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/sizes"
)

// CheckSpace reports whether a new file of size bytes at path would fit, and creates nothing.
// It fails with fs.ErrExist if there is such a file already, however full the mount is, and
// with a [*SpaceError].
func CheckSpace(path string, size int64) error {
	if _, err := os.Lstat(path); err == nil {
		return &os.PathError{Op: "create", Path: path, Err: unix.EEXIST}
	}
	return CheckRoom(path, size)
}

// CheckRoom fails with a [*SpaceError] if there is no room for size bytes more in the folder of
// path. An unknown limit counts as none.
func CheckRoom(path string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil || size < 0 {
		return nil // making the file reports it better
	}
	// A mount without a limit reports 0 of 0 blocks.
	if bs := int64(st.Bsize); st.Blocks > 0 && bs > 0 && uint64((size-1)/bs+1) > st.Bavail {
		return mountError(path, size, int64(st.Bavail)*bs, st)
	}
	// The pages of other file systems are cache, which makes room by itself.
	if int64(st.Type) != unix.TMPFS_MAGIC && int64(st.Type) != unix.RAMFS_MAGIC {
		return nil
	}
	root := os.DirFS("/")
	if r, ok := CgroupRoom(root); ok && size > r.Left() {
		return cgroupSpace(findHost(root, os.Getenv), path, size, r)
	}
	return nil
}

func mountError(path string, need, have int64, st unix.Statfs_t) error {
	m, _ := MountOfDir(filepath.Dir(path))
	return mountSpace(findHost(os.DirFS("/"), os.Getenv), path, need, have, int64(st.Blocks)*int64(st.Bsize), m)
}

// allocatePiece bounds one call of fallocate. A signal makes tmpfs undo a whole call, so
// that a large call might never end in a process that gets many signals.
const allocatePiece = 32 << 20

// allocate extends the empty file f to size bytes, all of them backed by memory, or leaves it
// empty.
//
// Two processes that allocate the last space piece by piece can both run out. So a process
// that runs out frees what it has and tries once more while it holds the lock of the folder:
// of those that would fit alone, one gets the space.
func allocate(f *os.File, size int64) error {
	err := checkAndFill(f, size)
	if !errors.Is(err, errRace) {
		return err
	}
	defer lockFolder(filepath.Dir(f.Name()))()
	return checkAndFill(f, size)
}

// folderPatience is longer than any allocation takes, even of a segment as large as the
// machine's memory, on a busy machine.
const folderPatience = 2 * time.Minute

// lockFolder waits until no other process allocates in dir, at most for folderPatience.
// Programs of others may hold the same lock, so no correctness depends on it.
func lockFolder(dir string) (unlock func()) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), folderPatience)
	defer cancel()
	_ = waitLock(ctx, f)
	return func() { _ = errors.Join(Unlock(f), f.Close()) }
}

// errRace reports that another process took the space meanwhile.
var errRace = errors.New("something else took the space meanwhile")

func checkAndFill(f *os.File, size int64) error {
	if err := CheckRoom(f.Name(), size); err != nil {
		return err
	}
	return fill(f, size)
}

// fill leaves the file empty on error.
func fill(f *os.File, size int64) error {
	for off := int64(0); off < size; {
		n := min(allocatePiece, size-off)
		err := unix.Fallocate(int(f.Fd()), 0, off, n)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			err = noSpace(f, size, off, err)
			return errors.Join(fmt.Errorf("allocating %s for %s: %w", sizes.Text(size), f.Name(), err), f.Truncate(0))
		}
		off += n
	}
	return nil
}

// noSpace turns err, at offset off of a file, into a [*SpaceError] if it is about space.
func noSpace(f *os.File, size, off int64, err error) error {
	var st unix.Statfs_t
	if err != unix.ENOSPC || unix.Fstatfs(int(f.Fd()), &st) != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errRace, mountError(f.Name(), size, off+int64(st.Bavail)*int64(st.Bsize), st))
}

// MountOfDir returns the mount that a directory is in.
func MountOfDir(dir string) (Mount, bool) {
	if d, err := filepath.Abs(dir); err == nil {
		dir = d
	}
	if d, err := filepath.EvalSymlinks(dir); err == nil {
		dir = d
	}
	device := ""
	var st unix.Stat_t
	if unix.Stat(dir, &st) == nil {
		device = fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	}
	return MountOf(os.DirFS("/"), dir, device)
}
