package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// away are the errors of a mount whose server is gone.
var away = []error{
	syscall.ENODEV, syscall.ENXIO, syscall.ENOTCONN, syscall.ESHUTDOWN, syscall.ETIMEDOUT, syscall.EHOSTDOWN,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED,
	errNotMounted,
}

func isAway(err error) bool {
	for _, e := range away {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// errNotMounted is a folder that is not the root which the level had opened.
var errNotMounted = fmt.Errorf("%w: the folder is not there, or not the root that it was: mount it", tier.ErrUnavailable)

// callerError is an error of the caller's own reader, writer or function, which is returned unchanged.
type callerError struct{ error }

// explained maps errors of the system to those of package tier, and to what a person can do.
var explained = []struct {
	when error
	is   error
	help string
}{
	{syscall.ENOSPC, tier.ErrFull, "the file system is full: free room there, or set or lower Options.Capacity"},
	{syscall.EDQUOT, tier.ErrFull, "the quota is used up: raise it, or set or lower Options.Capacity"},
	{syscall.EFBIG, tier.ErrTooLarge, "the file system, or the limit RLIMIT_FSIZE, allows no file of that size"},
	{syscall.EROFS, tier.ErrUnavailable, "the file system is mounted read-only: mount it writable"},
	{syscall.EMFILE, tier.ErrUnavailable, "no descriptors are left: raise the limit of open files, or lower Options.Workers"},
	{syscall.ENFILE, tier.ErrUnavailable, "no descriptors are left: raise the limit of open files, or lower Options.Workers"},
	{fs.ErrPermission, tier.ErrUnavailable, "this process lacks the permission: all processes that share the folder need the same user"},
	{syscall.ESTALE, tier.ErrUnavailable, "the file server knows the file or the folder no longer: mount it again if that goes on"},
	{syscall.EIO, tier.ErrUnavailable, "the file server or its device has failed: see the kernel's log"},
}

// explain adds the folder and what was done, and makes an error of the system one of package tier. An error that it does
// not know becomes ErrUnavailable.
func explain(where, doing string, err error) error {
	var own callerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.error
	}
	for _, e := range explained {
		if errors.Is(err, e.when) {
			return fmt.Errorf("folder: %s: %s: %w: %s: %w", where, doing, e.is, e.help, err)
		}
	}
	for _, known := range []error{
		tier.ErrFull, tier.ErrTooLarge, tier.ErrUnavailable, tier.ErrNotFound, tier.ErrPending, tier.ErrCorrupt,
		context.Canceled, context.DeadlineExceeded, fs.ErrInvalid, fs.ErrClosed, fs.ErrExist, errors.ErrUnsupported,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("folder: %s: %s: %w", where, doing, err)
		}
	}
	return fmt.Errorf("folder: %s: %s: %w: %w", where, doing, tier.ErrUnavailable, err)
}

func (l *Level) explain(doing string, k tier.Key, err error) error {
	if err == nil {
		return nil
	}
	return explain(l.path, fmt.Sprintf("%s %v", doing, k), err)
}

// isAbsent reports that there is no file of an object at a path.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrForeign) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.EISDIR)
}

func isStale(err error) bool { return errors.Is(err, syscall.ESTALE) }
