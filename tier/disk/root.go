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
)

// root is an open folder with its index. A level has one, and another one after the folder vanished
// and came back.
type root struct {
	o       Options
	folder  *folder
	most    int   // files and folders in the index; 0 is no bound
	slots   slots // of files that may be open
	heads   slots // the same for files of which only the head is read, which waits for no writing and no stream
	counted *counters

	mu sync.Mutex // guards what follows; nothing waits or does input or output under it
	x  *index
	// complete is whether the first search has ended, so that the index has every file.
	complete bool
	search   Search
	// damaged are files that stay in their place, by path, with the time that was counted.
	damaged map[id]int64
	emptied map[string]struct{} // folders of a shared tree that may be empty since something was taken away
	pass    uint32              // number of the search
	indexed chan struct{}       // closed after the first search

	ctx    context.Context // ends with the root
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// replaced is set before the root is closed because the level has another one: calls that are still in it fail with
	// errors of files that are closed.
	replaced atomic.Bool
}

// counters are those of a level, whatever its roots.
type counters struct{ evicted, corrupt atomic.Int64 }

// openRoot opens a folder. create makes it if it is not there.
func openRoot(path string, o Options, create bool, c *counters) (_ *root, err error) {
	if create && !o.ReadOnly {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, root: dir, fail: o.fail}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.root.Close())
		}
	}()
	if f.dir, err = dir.Open("."); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.dir.Close())
		}
	}()
	info, err := f.dir.Stat()
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		f.self = info
		if err := o.readIdentity(dir, path); err != nil {
			return nil, err
		}
	} else {
		if ownedByOther(info) {
			return nil, fmt.Errorf("disk: %s belongs to another user: use a folder of your own, or Options.ReadOnly: %w", path, os.ErrPermission)
		}
		if f.lock, err = takeLock(dir, path, o); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, unlock(f.lock))
			}
		}()
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
	block := blockSize(f.dir)
	r := &root{
		o: o, folder: f, most: mostItems(f.dir, o), slots: make(slots, o.Workers), heads: make(slots, max(1, o.Workers/2)), counted: c,
		x: newIndex(block), indexed: make(chan struct{}), damaged: map[id]int64{}, emptied: map[string]struct{}{},
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.tasks.Go(r.searchAll)
	return r, nil
}

// The index has at most one file or folder for each shareOfItem bytes of the capacity, so that its memory is
// a small part of that. A root of any size has leastItems.
const (
	shareOfItem = 64 << 10
	leastItems  = 64 << 10
)

// mostItems bounds the index of a root. One that is only read has what is there, and so has a shared tree
// that nobody has told this level to keep small: others' files would go for the bound.
func mostItems(dir *os.File, o Options) int {
	switch {
	case o.ReadOnly || o.Shared && o.Capacity == 0:
		return 0
	case o.items > 0:
		return o.items
	case o.Capacity > 0:
		return int(max(o.Capacity/shareOfItem, leastItems))
	}
	return int(max(fileSystemSize(dir)/shareOfItem, leastItems))
}

// readIdentity compares the options with what a root says about itself, if it does, and takes its space from there.
func (o *Options) readIdentity(dir *os.Root, path string) error {
	f, err := dir.Open(lockPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a tree of other programs
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

// sweep removes temporary files: they belong to the dead, since this process has the lock.
func (f *folder) sweep() error {
	d, err := f.root.Open(tempDir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := f.root.RemoveAll(tempDir + "/" + n); err != nil {
			return err
		}
		failpoint.Hit("disk.swept")
	}
	return nil
}

// close ends the root. Nobody calls it any more.
func (r *root) close() error {
	r.cancel()
	r.tasks.Wait()
	return r.folder.close()
}

// pathOf returns the path of a key: ErrNotFound for one that can't be here.
func (r *root) pathOf(k tier.Key) (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	if r.o.Space != "" && k.Space != r.o.Space {
		return "", fmt.Errorf("%w: this root is for the space %q", tier.ErrNotFound, r.o.Space)
	}
	p, err := r.o.Layout.Path(k)
	if err == nil && (!fs.ValidPath(p) || p == "." || p == ownDir || strings.HasPrefix(p, ownDir+"/")) {
		err = fmt.Errorf("disk: the layout %s has for %v the path %q, which leads out of the root or to its own files: %w", r.o.Layout.Name(), k, p, fs.ErrInvalid)
	}
	return p, err
}

// authoritative reports whether the index alone answers what is not there.
func (r *root) authoritative() bool { return r.complete && !r.o.Shared && !r.o.ReadOnly }

// remember notes that the file of e was taken away, for those who have it open and would enter it into the
// index. A complete index takes nothing more in. The caller has the lock.
func (r *root) remember(e *entry) {
	if !r.authoritative() {
		r.x.remember(e.id)
	}
}
