package disk

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/ringcache/ringcache/tier"
)

// Verified is a file that [Level.Verify] has read.
type Verified struct {
	Path   string      // relative to the root
	Object tier.Object // if its head can be read
	// Err is nil if every byte is right, ErrCorrupt if not, fs.ErrInvalid for a file that is none of the
	// layout's, or ErrUnavailable if it could not be read.
	Err error
}

// verify reads every file. It calls started when Close need not wait for it any more: so yield may close the
// level.
func (r *root) verify(ctx context.Context, started func(), yield func(Verified) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	found := make(chan Verified)
	done := make(chan error, 1)
	r.tasks.Go(func() {
		done <- r.walk(ctx, func(ctx context.Context, p string, regular bool) error {
			v, ok := r.verifyFile(ctx, p, regular)
			if !ok {
				return ctx.Err()
			}
			select {
			case found <- v:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		close(found)
	})
	started()
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

// verifyFile reports whether there is anything to say about a file: it may be gone.
func (r *root) verifyFile(ctx context.Context, p string, regular bool) (v Verified, ok bool) {
	v.Path = p
	if !regular {
		v.Err = errInvalidFile
		return v, true
	}
	if r.slot(ctx) != nil {
		return v, false
	}
	defer r.free()
	f, err := r.openObject(p)
	if err == nil {
		defer f.file.Close()
		v.Object = f.head.Object
		if _, err = r.read(ctx, p, f, &tier.Get{To: io.Discard}); err != nil {
			f.lookAgain()
		}
	}
	switch {
	case err == nil:
		return v, true
	case errors.Is(err, tier.ErrCorrupt):
		v.Err = r.damage(p, f.info, err)
		return v, errors.Is(v.Err, tier.ErrCorrupt) || !errors.Is(v.Err, tier.ErrNotFound)
	case errors.Is(err, errStranger):
		v.Err = errInvalidFile
		return v, true
	case errors.Is(err, tier.ErrNotFound), errors.Is(err, errChanged), ctx.Err() != nil:
		return v, false
	}
	v.Err = r.explain("reading "+p, err)
	return v, true
}
