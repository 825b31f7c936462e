package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/ringcache/ringcache/tier"
)

// Verified is a file that [Level.Verify] has read.
type Verified struct {
	Path   string      // relative to the root
	Object tier.Object // if its head can be read
	// Err is nil if every byte is right, and ErrCorrupt if not, or if another program is still writing the
	// file. It is ErrPath for a file at a path where the layout has none, fs.ErrInvalid for anything else
	// than an object at a path of the layout, such as a link, and ErrUnavailable if the file, or a folder,
	// could not be read.
	Err error
}

// verify reads every file. It calls started once r.tasks counts the reading goroutine: from then on Close
// waits for that and not for this call, so yield may close the level.
func (r *root) verify(ctx context.Context, started func(), yield func(Verified) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	// The walk verifies several files side by side, and yield is called by this goroutine alone.
	found := make(chan Verified)
	done := make(chan error, 1)
	r.tasks.Go(func() {
		done <- r.walk(ctx, func(ctx context.Context, p string, mode fs.FileMode) error {
			v, ok := r.verifyFile(ctx, p, mode)
			if !ok {
				return ctx.Err()
			}
			select {
			case found <- v:
			case <-ctx.Done():
			}
			return ctx.Err()
		}, nil)
		close(found)
	})
	started()
	// After yield has returned false, the rest is received and dropped until the walk has noticed the end of
	// ctx.
	stopped := false
	for v := range found {
		if !stopped && !yield(v) {
			stopped = true
			cancel()
		}
	}
	err := <-done
	switch {
	case stopped:
		return nil
	case r.ctx.Err() != nil:
		return fs.ErrClosed
	}
	return err
}

// verifyFile reads one file. It returns false for a file that was removed or replaced meanwhile.
func (r *root) verifyFile(ctx context.Context, p string, mode fs.FileMode) (v Verified, ok bool) {
	v.Path = p
	if !mode.IsRegular() {
		v.Err = fmt.Errorf("disk: %s is not an object, but a %s: %w", p, r.kindOf(p, mode), fs.ErrInvalid)
		if mode.IsDir() && !r.layoutHas(p) {
			v.Err = fmt.Errorf("disk: the folder %s can't be read: %w", p, tier.ErrUnavailable)
		}
		return v, true
	}
	if r.slots.Acquire(ctx) != nil {
		return v, false
	}
	defer r.slots.Release()
	f, err := r.openObject(p)
	if err == nil {
		defer f.file.Close()
		v.Object = f.head.Object
		if _, err = r.read(ctx, p, f, &tier.Get{To: io.Discard}); err != nil {
			f.refreshInfo()
		}
	}
	switch {
	case err == nil:
		return v, true
	case errors.Is(err, tier.ErrCorrupt):
		// missDamaged reports a file without ErrCorrupt if it was replaced meanwhile: that is a newer file.
		v.Err = r.missDamaged(p, f.info, err)
		if errors.Is(v.Err, errYoung) {
			v.Err = fmt.Errorf("%w: %w", tier.ErrCorrupt, v.Err)
		}
		return v, errors.Is(v.Err, tier.ErrCorrupt) || !errors.Is(v.Err, tier.ErrNotFound)
	case errors.Is(err, errForeign) && !r.layoutHas(p):
		v.Err = ErrPath
		return v, true
	case errors.Is(err, errForeign):
		v.Err = fmt.Errorf("%w: %v", fs.ErrInvalid, err)
		return v, true
	case errors.Is(err, tier.ErrNotFound), errors.Is(err, errChanged), ctx.Err() != nil:
		return v, false
	}
	v.Err = r.explain("reading "+p, err)
	return v, true
}

// kindOf names what is at a path in place of a regular file.
func (r *root) kindOf(p string, mode fs.FileMode) string {
	switch t := mode.Type(); {
	case t&fs.ModeSymlink != 0:
		return "symbolic link"
	case t&fs.ModeNamedPipe != 0:
		return "named pipe"
	case t&fs.ModeSocket != 0:
		return "socket"
	case t&fs.ModeDevice != 0:
		return "device"
	case t.IsDir():
		return "folder"
	}
	return "file of an unknown kind"
}
