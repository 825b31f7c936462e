package disk

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
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
		if r.x.entries[e.id] != e || e.state != present {
			r.mu.Unlock()
			continue
		}
		if r.x.promised(e.id, r.o.now()) {
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
		r.removeFolders(p)
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

// removeFolders removes the folders around a file that is gone, as far as nothing else is in them. Nobody is
// in their way: a Put whose folder goes makes it again. In a shared tree a stock writer may be about to write
// there, and would fail: there the next searches remove what is empty for long.
func (r *root) removeFolders(file string) {
	for p := path.Dir(file); p != "."; p = path.Dir(p) {
		r.mu.Lock()
		used := r.x.places[p] != nil && r.x.places[p].stays > 0
		if !used && r.o.Shared {
			r.emptied[p] = struct{}{}
		}
		r.mu.Unlock()
		if used || !r.o.Shared && r.folder.root.Remove(p) != nil { // something else is in it, such as a file that goes at the same time
			return
		}
	}
}

// removeEmpty removes a folder that a search found empty, and those around it that are then. One at the place
// of an object is another program's, until something is stored there.
func (r *root) removeEmpty(p string) {
	if r.o.ReadOnly || p == "lost+found" || r.layoutHas(p) {
		return
	}
	for ; p != "." && r.folder.root.Remove(p) == nil; p = path.Dir(p) {
	}
}

// removeEmptied removes folders of a shared tree that this level has emptied, when nobody has written to them
// for as long as a file is young. Others' empty folders stay. In a folder that was just emptied of another
// one, something was changed: it goes with a later search.
func (r *root) removeEmptied() {
	r.mu.Lock()
	emptied := slices.SortedFunc(maps.Keys(r.emptied), func(a, b string) int { return len(b) - len(a) })
	r.mu.Unlock()
	for _, p := range emptied {
		info, err := r.folder.lstat(p)
		if err == nil && r.o.now().Sub(info.ModTime()) < max(r.o.MinAge, 1) {
			continue
		}
		if err == nil && info.IsDir() {
			_ = r.folder.root.Remove(p) // unless something is in it
		}
		r.mu.Lock()
		delete(r.emptied, p)
		r.mu.Unlock()
	}
}

// promise keeps an object until a time.
func (r *root) promise(ctx context.Context, k tier.Key, until time.Time) (tier.Object, error) {
	p, err := r.pathOf(k)
	if err != nil {
		return tier.Object{}, err
	}
	for {
		o, e, err := r.describe(ctx, p, k)
		if err != nil {
			return tier.Object{}, err
		}
		r.mu.Lock()
		if r.x.entries[e.id] != e || e.state != present {
			r.mu.Unlock()
			if err := ctx.Err(); err != nil {
				return tier.Object{}, err
			}
			continue // it goes, or is gone
		}
		if at := until.UnixNano(); until.After(r.o.now()) && at > r.x.promises[e.id] {
			r.x.promises[e.id] = at
		}
		r.mu.Unlock()
		return o, nil
	}
}
