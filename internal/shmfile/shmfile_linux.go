package shmfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/sizes"
)

// Open opens an existing file, to read or also to write, after checking that it
// is a regular file of this user that not everyone may write.
func Open(path string, write bool) (*os.File, int64, error) {
	mode := os.O_RDONLY
	if write {
		mode = os.O_RDWR
	}
	f, err := os.OpenFile(path, mode|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, 0, fmt.Errorf("%w: %s is a symbolic link", ErrUnsafe, path)
		}
		return nil, 0, err
	}
	size, err := check(f, path)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

func check(f *os.File, path string) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%w: no owner known for %s", ErrUnsafe, path)
	}
	return st.Size(), checkOwner(path, st.Mode(), sys.Uid, uint32(os.Geteuid()))
}

// Same reports whether path still names the file f.
func Same(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// Map maps size bytes of f, shared, to read or also to write. It stays mapped
// when f is closed.
func Map(f *os.File, size int64, write bool) ([]byte, error) {
	if size <= 0 || int64(int(size)) != size {
		return nil, fmt.Errorf("mapping %s: size %d: %w", f.Name(), size, fs.ErrInvalid)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s of %s: %w", sizes.Text(size), f.Name(), err)
	}
	// The content is large, and other people's images do not belong in a core dump.
	_ = unix.Madvise(b, unix.MADV_DONTDUMP)
	return b, nil
}

// Unmap ends a mapping made by Map.
func Unmap(b []byte) error { return unix.Munmap(b) }
