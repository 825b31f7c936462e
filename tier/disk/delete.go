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

// delete removes an object. It fails with ErrInUse if the object is pinned.
func (r *root) delete(ctx context.Context, k tier.Key) error {
	p, err := r.pathOf(k)
	if err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := r.findKey(ctx, p, k)
		switch {
		case err == nil:
		case errors.Is(err, tier.ErrPending): // its file has no name yet
			return tier.ErrNotFound
		default:
			return err
		}
		r.mu.Lock()
		if r.x.entries[e.id] != e || e.state != present {
			r.mu.Unlock()
			continue // another call removed or replaced the file since findKey
		}
		if r.x.pinned(e.id, r.o.now()) {
			r.mu.Unlock()
			return tier.ErrInUse
		}
		r.x.startRemoval(e)
		r.mu.Unlock()
		err = r.folder.remove(p)
		if err != nil && !isAbsent(err) {
			r.locked(func(x *index) { x.cancelRemoval(e) })
			return err
		}
		failpoint.Hit("disk.deleted")
		absent := err != nil // a person or another program has removed the file
		r.removeFolders(p)
		r.locked(func(x *index) {
			r.noteRemoved(e)
			x.endRemoval(e, deleted)
		})
		if absent {
			return tier.ErrNotFound
		}
		return nil
	}
}

// removeFolders removes the folders around a file that was removed, as far as they are empty. A Put that is
// about to rename a file into such a folder makes the folder again. A writer of another program would fail
// instead, so in a shared tree the folders are only noted, and a later search removes those that stay empty
// (removeEmptied).
func (r *root) removeFolders(file string) {
	for p := path.Dir(file); p != "."; p = path.Dir(p) {
		r.mu.Lock()
		// A folder that a Put has entered in the index is about to get its file: it is not tried.
		used := r.x.subfolders[p] != nil && r.x.subfolders[p].kept > 0
		if !used && r.o.Shared {
			r.emptied[p] = struct{}{}
		}
		r.mu.Unlock()
		// Remove fails if anything is in the folder, such as a file that another call is removing.
		if used || !r.o.Shared && r.folder.tree.Root.Remove(p) != nil {
			return
		}
	}
}

// removeEmpty removes a folder that a search found empty, and the folders around it that are empty then. A
// folder at the path of an object is foreign, and stays until an object is stored there.
func (r *root) removeEmpty(p string) {
	if r.o.ReadOnly || p == "lost+found" || r.layoutHas(p) {
		return
	}
	for ; p != "." && r.folder.tree.Root.Remove(p) == nil; p = path.Dir(p) {
	}
}

// removeEmptied removes folders of a shared tree in which this level has removed the last file, once they
// have not changed for MinAge. Other empty folders may be new ones of another program, and stay. Removing a
// folder changes the folder around it, which is therefore removed by a later search.
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
			_ = r.folder.tree.Root.Remove(p) // fails if something is in it
		}
		r.mu.Lock()
		delete(r.emptied, p)
		r.mu.Unlock()
	}
}

// pin keeps an object until a time. Of two pins for one object the later time counts.
func (r *root) pin(ctx context.Context, k tier.Key, until time.Time) (tier.Object, error) {
	p, err := r.pathOf(k)
	if err != nil {
		return tier.Object{}, err
	}
	for {
		o, e, err := r.readHead(ctx, p, k)
		if err != nil {
			return tier.Object{}, err
		}
		r.mu.Lock()
		if r.x.entries[e.id] != e || e.state != present {
			r.mu.Unlock()
			if err := ctx.Err(); err != nil {
				return tier.Object{}, err
			}
			continue // it is being removed, or was removed, since readHead
		}
		if at := until.UnixNano(); until.After(r.o.now()) && at > r.x.pins[e.id] {
			r.x.pins[e.id] = at
		}
		r.mu.Unlock()
		return o, nil
	}
}
