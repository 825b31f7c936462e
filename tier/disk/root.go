package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/slots"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// root is an open folder with its index. A level has one root at a time: a new one replaces it when the
// folder was removed and is there again.
type root struct {
	o        Options
	folder   *folder
	maxItems int         // the most files and folders in the index; 0 is no bound
	slots    slots.Slots // tokens of files that may be open
	heads    slots.Slots // the same where only the head is read: Stat must not wait behind writes and streams
	counted  *counters

	// mu guards the fields up to indexed, and the fields of entries that change once the entry is in the
	// index. Nothing waits, reads or writes files while it holds mu. A method that writes or removes the file
	// of an entry first moves the entry to the state writing or removing under mu; until that method changes
	// the state again, no other method touches the file.
	mu sync.Mutex
	x  *index
	// complete is set when the first search has ended without an error: the index then has every file.
	complete bool
	search   Search
	// damaged has the modification time of each file that was counted as damaged and stays at its path, since
	// it could not be removed or the root is only read: each time counts once.
	damaged map[id]int64
	// folders of a shared tree that may be empty, since this level removed a file in them
	emptied      map[string]struct{}
	searchNumber uint32        // of the current or last search
	indexed      chan struct{} // closed after the first search

	ctx    context.Context // ends with the root
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// replaced is set before the root is closed in favour of a new one. Calls that still use the old root
	// then fail with fs.ErrClosed, which explain turns into an error that says so.
	replaced atomic.Bool
}

// counters are those of a level. They outlive its roots.
type counters struct{ evicted, corrupt atomic.Int64 }

// openRoot opens a folder, in this order: lock, identity, temporary files, damaged files, index. Nothing is
// removed before the lock is held and the layout is known to be the right one. create makes the folder if it
// is not there; a folder that was removed while the level had it is not made again, since its file system may
// only be unmounted.
func openRoot(path string, o Options, create bool, c *counters) (_ *root, err error) {
	if create && !o.ReadOnly {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	t, err := tree.Open(path)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, tree: t, fail: o.fail}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	info, err := f.tree.Dir.Stat()
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		f.self = info
		if err := o.readIdentity(t.Root, path); err != nil {
			return nil, err
		}
	} else {
		if err := refuseOtherOwner(path, info); err != nil {
			return nil, err
		}
		if f.lock, err = lockRoot(t.Root, path, o); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, unlock(f.lock))
			}
		}()
		// The lock file stands for the root: if the path leads to another file later, the root was replaced.
		if f.self, err = f.lock.Stat(); err != nil {
			return nil, err
		}
		if err = f.sweep(); err != nil {
			return nil, err
		}
		if err = f.trimDamaged(o.KeepDamaged); err != nil {
			return nil, err
		}
	}
	block := tree.BlockSize(f.tree.Dir)
	r := &root{
		o: o, folder: f, maxItems: maxItemsFor(f.tree.Dir, o), counted: c,
		slots: make(slots.Slots, o.Workers), heads: make(slots.Slots, max(1, o.Workers/2)),
		x: newIndex(block), indexed: make(chan struct{}), damaged: map[id]int64{}, emptied: map[string]struct{}{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.tasks.Go(r.searchAll)
	return r, nil
}

// The index has at most one file or folder for each bytesPerItem bytes of the capacity, so that the memory of
// the index is a small part of the capacity. Every root may have minItems, however small it is.
const (
	bytesPerItem = 64 << 10
	minItems     = 64 << 10
)

// maxItemsFor returns the most files and folders in the index of a root; 0 is no bound. A root that is only
// read has no bound, since nothing can be evicted. Nor has a shared tree without a Capacity: this level would
// remove files of other programs only to keep its own index small.
func maxItemsFor(dir *os.File, o Options) int {
	switch {
	case o.ReadOnly || o.Shared && o.Capacity == 0:
		return 0
	case o.items > 0:
		return o.items
	case o.Capacity > 0:
		return int(max(o.Capacity/bytesPerItem, minItems))
	}
	return int(max(tree.FileSystemSize(dir)/bytesPerItem, minItems))
}

// readIdentity compares the options with the lock file of a root that is only read, and sets the space from
// there. A tree of other programs has no lock file.
func (o *Options) readIdentity(dir *os.Root, path string) error {
	f, err := dir.Open(lockPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	id, err := readIdentity(f)
	if err != nil || id == nil {
		return err
	}
	if err := id.refuse(path, *o); err != nil {
		return err
	}
	if o.Space == "" && id.Space != nil {
		o.Space = *id.Space
	}
	return nil
}

// sweep removes all temporary files. The processes that wrote them are dead, since this process has the lock.
func (f *folder) sweep() error {
	names, err := f.names(tempDir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := f.tree.Root.RemoveAll(tempDir + "/" + n); err != nil {
			return err
		}
		failpoint.Hit("disk.swept")
	}
	return nil
}

// close ends the root, after the calls that use it.
func (r *root) close() error {
	r.cancel()
	r.tasks.Wait()
	return r.folder.close()
}

// pathOf returns the path of a key. It fails with ErrNotFound for a key of another space.
func (r *root) pathOf(k tier.Key) (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	if r.o.Space != "" && k.Space != r.o.Space {
		return "", fmt.Errorf("%w: this root is for the space %q", tier.ErrNotFound, r.o.Space)
	}
	p, err := r.o.Layout.Path(k)
	if err == nil && (!fs.ValidPath(p) || p == "." || p == ownDir || strings.HasPrefix(p, ownDir+"/")) {
		err = fmt.Errorf("disk: the layout %s has for %v the path %q, which is outside the root or in .ringcache: %w",
			r.o.Layout.Name(), k, p, fs.ErrInvalid)
	}
	return p, err
}

// authoritative reports whether a key that the index lacks is a miss without a look at the disk. The caller
// holds mu.
func (r *root) authoritative() bool { return r.complete && !r.o.Shared && !r.o.ReadOnly }

// noteRemoved notes that the file of e was removed, for those who have it open and would enter it into the
// index. A complete index takes nothing more in. The caller has the lock.
func (r *root) noteRemoved(e *entry) {
	if !r.authoritative() {
		r.x.noteRemoved(e.id)
	}
}
