// Package shmfile creates, opens, maps and removes the files behind POSIX
// shared memory objects and named semaphores.
package shmfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/internal/sentinel"
)

// DefaultDir is where Linux keeps POSIX shared memory objects.
const DefaultDir = "/dev/shm"

var (
	// ErrUnsupported reports that this system has no shared memory that this module can use.
	// It is also an errors.ErrUnsupported.
	ErrUnsupported = sentinel.Like("shared memory is supported on linux only", errors.ErrUnsupported)
	// ErrUnsafe reports that a file exists but must not be trusted.
	ErrUnsafe = errors.New("refusing an unsafe shared memory file")
	// ErrName reports that a text can't be the name of a shared memory object.
	ErrName = errors.New("bad shared memory name")
)

// Path returns the file of the object name in dir ([DefaultDir] if empty). As in POSIX, name
// may begin with one slash.
func Path(dir, name string) (string, error) {
	n := strings.TrimPrefix(name, "/")
	if n == "" || n == "." || n == ".." || strings.ContainsAny(n, "/\x00") || len(n) > 255 {
		return "", fmt.Errorf("%w %q: want 1 to 255 bytes without a slash", ErrName, name)
	}
	if dir == "" {
		dir = DefaultDir
	}
	return filepath.Join(dir, n), nil
}

// checkOwner refuses a file that another user could have planted or could change.
func checkOwner(path string, mode fs.FileMode, uid, euid uint32) error {
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("%w: %s is not a regular file (%v)", ErrUnsafe, path, mode.Type())
	case uid != euid:
		return fmt.Errorf("%w: %s belongs to uid %d, this process runs as uid %d; run both as one user",
			ErrUnsafe, path, uid, euid)
	case mode.Perm()&0o002 != 0:
		return fmt.Errorf("%w: %s is writable by everyone (mode %04o); chmod it to 0600", ErrUnsafe, path, mode.Perm())
	}
	return nil
}

// SweepCommand returns the command by which an operator removes the segment name and its
// sidecar, whatever its label is.
func SweepCommand(name string) string {
	return "ringcache sweep " + name + " --any-owner --remove"
}
