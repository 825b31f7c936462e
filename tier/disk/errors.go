package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

var (
	// errForeign is a file of another program at a path where the layout could have one. It is a miss, and
	// stays.
	errForeign = tree.ErrForeign
	// errBlocked is an object that can't be stored: something else is at its path, and the level must not
	// remove it.
	errBlocked = tree.ErrBlocked
	// errRootGone makes the level look for the folder again, see Level.reopen.
	errRootGone = fmt.Errorf("the folder of the root, or its lock file, is gone or was replaced: %w",
		tier.ErrUnavailable)
)

// explained maps errors of the system to those of package tier, and to what a person can do.
var explained = []struct {
	when []error
	is   error
	help string
}{
	{[]error{syscall.ENOSPC}, tier.ErrFull, "the file system is full: free room there, or lower Options.Capacity"},
	{[]error{syscall.EDQUOT}, tier.ErrFull, "the quota of this user is used up: raise it, or lower Options.Capacity"},
	{[]error{syscall.EFBIG}, tier.ErrTooLarge,
		"the file system, or the limit RLIMIT_FSIZE, allows no file of that size"},
	{[]error{syscall.EROFS}, tier.ErrUnavailable,
		"the file system is mounted read-only: mount it writable; errors of the device are in the kernel's log"},
	{[]error{syscall.EMFILE, syscall.ENFILE}, tier.ErrUnavailable,
		"no descriptors are left: raise the limit of open files, or lower Options.Workers"},
	{[]error{fs.ErrPermission}, tier.ErrUnavailable,
		"this process lacks the permission: correct the owner or the mode of the folder"},
	{[]error{syscall.EIO}, tier.ErrUnavailable, "the device has failed: see the kernel's log, and replace it"},
	{[]error{syscall.ESTALE, syscall.ENODEV, syscall.ENXIO}, tier.ErrUnavailable,
		"the file system is gone: mount it again"},
}

// explain adds the folder and what was done, and makes an error of the system one of package tier. An error
// that it does not know becomes ErrUnavailable.
func (r *root) explain(doing string, err error) error {
	if r.replaced.Load() && errors.Is(err, fs.ErrClosed) {
		err = fmt.Errorf("%w, and the level has opened it anew: ask again", errRootGone)
	}
	return explain(r.folder.path, doing, err)
}

// explain is root.explain for a folder that has no root yet.
func explain(where, doing string, err error) error {
	if err == nil {
		return nil
	}
	for _, e := range explained {
		for _, w := range e.when {
			if errors.Is(err, w) {
				return fmt.Errorf("disk: %s: %s: %w: %s: %w", where, doing, e.is, e.help, err)
			}
		}
	}
	for _, known := range []error{
		tier.ErrFull, tier.ErrTooLarge, tier.ErrUnavailable, tier.ErrNotFound, tier.ErrPending, tier.ErrCorrupt,
		context.Canceled, context.DeadlineExceeded, fs.ErrInvalid, fs.ErrClosed, tier.ErrInUse, errBlocked,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("disk: %s: %s: %w", where, doing, err)
		}
	}
	return fmt.Errorf("disk: %s: %s: %w: %w", where, doing, tier.ErrUnavailable, err)
}

// explainsItself reports errors of Open that already name the folder and what to do.
func explainsItself(err error) bool {
	return errors.Is(err, fs.ErrExist) || errors.Is(err, errors.ErrUnsupported)
}

// isAbsent reports that there is no file of an object at a path: there is nothing, or something foreign, also
// in place of one of the folders of the path.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errForeign) ||
		errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}
