package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ringcache/ringcache/tier"
)

var (
	// errForeign is a file that is none of ours, at a place where one could be.
	errForeign = errors.New("the file is none of this layout")
	// errTaken is an object that can't be stored at its place, whatever the level does.
	errTaken    = fmt.Errorf("something that is none of this level's lies where the object's file has to be; remove it: %w", fs.ErrExist)
	errVanished = fmt.Errorf("the folder of the root, or its lock file, is gone or was replaced: %w", tier.ErrUnavailable)
)

// explained maps errors of the system to those of package tier, and to what helps.
var explained = []struct {
	when []error
	is   error
	help string
}{
	{[]error{syscall.ENOSPC}, tier.ErrFull, "the file system is full: free room there, or lower Options.Capacity"},
	{[]error{syscall.EDQUOT}, tier.ErrFull, "the quota of this user is used up: raise it, or lower Options.Capacity"},
	{[]error{syscall.EFBIG}, tier.ErrTooLarge, "the file system, or the limit RLIMIT_FSIZE, allows no file of that size"},
	{[]error{syscall.EROFS}, tier.ErrUnavailable, "the file system is mounted read-only: mount it writable; after errors of the device look at the kernel's log"},
	{[]error{syscall.EMFILE, syscall.ENFILE}, tier.ErrUnavailable, "no descriptors are left: raise the limit of open files, or lower Options.Workers"},
	{[]error{fs.ErrPermission}, tier.ErrUnavailable, "this process may not do that: look at the owner and the mode of the folder"},
	{[]error{syscall.EIO}, tier.ErrUnavailable, "the device has failed: look at the kernel's log"},
	{[]error{syscall.ESTALE, syscall.ENODEV, syscall.ENXIO}, tier.ErrUnavailable, "the file system is gone: mount it again"},
}

// explain names the folder and what was done, and makes an error of the system one of package tier: what is
// not known otherwise is ErrUnavailable.
func (r *root) explain(doing string, err error) error {
	if r.replaced.Load() && errors.Is(err, fs.ErrClosed) {
		err = fmt.Errorf("%w, and the level has opened it anew: ask again", errVanished)
	}
	return explain(r.folder.path, doing, err)
}

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
		context.Canceled, context.DeadlineExceeded, fs.ErrInvalid, fs.ErrClosed, tier.ErrInUse, errTaken,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("disk: %s: %s: %w", where, doing, err)
		}
	}
	return fmt.Errorf("disk: %s: %s: %w: %w", where, doing, tier.ErrUnavailable, err)
}

// isAbsent reports that there is no file of an object at a path.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errForeign) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}
