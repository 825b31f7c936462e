package disk

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// delete removes an object that nobody was promised.
func (r *root) delete(ctx context.Context, k tier.Key) error {
	p, err := r.pathOf(k)
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := r.lookFor(ctx, p, k)
		switch {
		case err == nil:
		case errors.Is(err, tier.ErrPending): // nobody can see it yet
			return tier.ErrNotFound
		default:
			return err
		}
		r.mu.Lock()
		if r.x.entries[p] != e || e.state != present {
			r.mu.Unlock()
			continue
		}
		if r.x.promised(p, r.o.now()) {
			r.mu.Unlock()
			return tier.ErrInUse
		}
		r.x.claim(e)
		r.mu.Unlock()
		err = r.folder.remove(p)
		if err != nil && !isAbsent(err) {
			r.locked(func(x *index) { x.unclaim(e) })
			return err
		}
		failpoint.Hit("disk.deleted")
		absent := err != nil
		_ = r.removeFolder(p)
		r.locked(func(x *index) {
			r.remember(e)
			x.drop(e, deleted)
		})
		if absent {
			return tier.ErrNotFound
		}
		return nil
	}
}

// removeFolder removes the folder of a file that is gone, if nothing else is in it. A stock writer of a shared tree may be
// about to write to that folder; and the native layout has 256 of them.
func (r *root) removeFolder(p string) error {
	parent := path.Dir(p)
	if _, native := r.o.Layout.(Native); native || r.o.Shared || parent == "." {
		return nil
	}
	_ = r.folder.root.Remove(parent) // it fails if something is in it, as it has to
	return nil
}

// promise keeps an object until a time.
func (r *root) promise(ctx context.Context, k tier.Key, until time.Time) (tier.Object, error) {
	p, err := r.pathOf(k)
	if err != nil {
		return tier.Object{}, err
	}
	for {
		e, err := r.lookFor(ctx, p, k)
		if err != nil {
			return tier.Object{}, err
		}
		r.mu.Lock()
		if r.x.entries[p] != e || e.state != present {
			r.mu.Unlock()
			if err := ctx.Err(); err != nil {
				return tier.Object{}, err
			}
			continue // it goes, or is gone
		}
		if at := until.UnixNano(); until.After(r.o.now()) && at > r.x.promises[p] {
			r.x.promises[p] = at
		}
		r.mu.Unlock()
		return e.object, nil
	}
}
