package shmfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// CheckSpace says before a new file of size bytes is made at path whether that
// can work. It fails with fs.ErrExist if there is such a file already, however
// full the mount is, and with a [*SpaceError]. It creates nothing.
func CheckSpace(path string, size int64) error {
	if _, err := os.Lstat(path); err == nil {
		return &os.PathError{Op: "create", Path: path, Err: unix.EEXIST}
	}
	return checkSpace(path, size)
}

// checkSpace fails with a [*SpaceError] if size bytes for a new file at path
// can't be there. What can't be found out is no limit.
func checkSpace(path string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil || size < 0 {
		return nil // making the file says it better
	}
	// A mount without a limit says 0 of 0 blocks.
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

// allocatePiece bounds one call of fallocate. A signal makes tmpfs undo a whole
// call, so that a large one might never come to its end in a process that gets
// many.
const allocatePiece = 32 << 20

// allocate gives the empty file f its size, all of it backed by memory, or
// leaves it empty.
//
// What was there a moment ago can be gone, and two that take it piece by piece
// can both run out. So the loser gives back what it has and tries once more, now
// one at a time: of those that would fit alone, one gets the space.
func allocate(f *os.File, size int64) error {
	err := checkAndFill(f, size)
	if !errors.Is(err, errRace) {
		return err
	}
	defer lockFolder(filepath.Dir(f.Name()))()
	return checkAndFill(f, size)
}

// folderPatience is longer than any allocation takes, of a segment as large as the
// machine's memory or on a machine that is busy.
const folderPatience = 2 * time.Minute

// lockFolder waits until no one else allocates in dir. Others may hold the lock for
// reasons of their own: it is worth a wait, but nothing depends on it.
func lockFolder(dir string) (unlock func()) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for end := time.Now().Add(folderPatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok, err := TryLock(f); ok || err != nil {
			break
		}
	}
	return func() { _ = errors.Join(Unlock(f), f.Close()) }
}

// errRace says that the space was there and was taken meanwhile.
var errRace = errors.New("something else took the space meanwhile")

func checkAndFill(f *os.File, size int64) error {
	if err := checkSpace(f.Name(), size); err != nil {
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
			return errors.Join(fmt.Errorf("allocating %d bytes for %s: %w", size, f.Name(), err), f.Truncate(0))
		}
		off += n
	}
	return nil
}

// noSpace makes err, of a file that got as far as off, a [*SpaceError] if that
// is what it is.
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
