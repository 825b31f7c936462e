package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Search is the progress of the search that builds the index of a root.
type Search struct {
	Files   int64 // found by this search so far
	Foreign int64 // of them, files that are not of the layout; they are left alone
	Damaged int64 // of them, files whose head is damaged, or not complete yet
	// Unreadable counts, of them, files and folders that this user may not read.
	Unreadable int64
	// Complete is set when a search has read the whole folder: the index has every object. A shared tree is
	// searched again later.
	Complete bool
	Err      error // why the last search did not read the whole folder; another one follows
}

// maxDepth bounds the folders in folders that a search enters.
const maxDepth = 16

// searchAll searches the folder until a search ends without an error, and a shared tree again and again. It
// is the only goroutine that a root has all the time.
func (r *root) searchAll() {
	for first := true; ; first = false {
		err := r.searchOnce()
		if r.ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.search.Err = err
		if err == nil {
			r.complete, r.search.Complete = true, true
		}
		r.mu.Unlock()
		// Also after an error, so that List and WaitIndex return it rather than wait for a search that may
		// never succeed.
		if first {
			close(r.indexed)
		}
		if !r.o.ReadOnly {
			r.trim() // only now are parents and children known
		}
		if err == nil && !r.o.Shared {
			return
		}
		select {
		case <-time.After(r.o.rescan):
		case <-r.ctx.Done():
			return
		}
	}
}

// searchOnce enters every file of the folder into the index. In a shared tree it then drops the entries whose
// files it did not find and that are not there.
func (r *root) searchOnce() error {
	r.mu.Lock()
	r.searchNumber++
	pass := r.searchNumber
	r.search.Files, r.search.Foreign, r.search.Damaged, r.search.Unreadable = 0, 0, 0, 0
	// A call that opened a file before the search before this one has ended by now, and needs no tick.
	r.x.removedBefore, r.x.removed = r.x.removed, map[id]uint64{}
	var old []*entry
	if r.o.Shared {
		for _, e := range r.x.entries {
			if e.state == present {
				old = append(old, e)
			}
		}
	}
	r.mu.Unlock()
	// A folder that was removed looks empty: the entries must not be dropped for that.
	if err := r.folder.checkThere(); err != nil {
		return err
	}
	// Empty folders of a shared tree are other programs', except for those that this level has emptied.
	empty := r.removeEmpty
	if r.o.Shared {
		empty = nil
		defer r.removeEmptied()
	}
	if err := r.walk(r.ctx, r.searchFile, empty); err != nil {
		return err
	}
	if err := r.folder.checkThere(); err != nil { // walk takes folders that vanish for removed ones
		return err
	}
	for _, e := range old {
		r.mu.Lock()
		unseen := e.lastSearch != pass
		r.mu.Unlock()
		if !unseen {
			continue
		}
		if _, err := r.folder.lstat(e.path()); err != nil && isAbsent(err) {
			if err := r.dropMissing(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// searchFile enters one file into the index, if its entry is missing or describes an older file.
func (r *root) searchFile(ctx context.Context, p string, mode fs.FileMode) error {
	regular := mode.IsRegular()
	r.mu.Lock()
	r.search.Files++
	e, tick := r.x.entries[idOf(p)], r.x.tick
	// An entry makes a look at the file unnecessary: this process writes or removes the file, or no other
	// process may change it. Only entries that are present in a shared tree may be wrong.
	known := e != nil && (!r.o.Shared || e.state != present)
	if e != nil {
		e.lastSearch = r.searchNumber
	}
	switch {
	case mode.IsDir() && !r.layoutHas(p):
		r.search.Unreadable++
	case !regular:
		r.search.Foreign++
	}
	r.mu.Unlock()
	if !regular || known {
		return nil
	}
	if err := r.slots.Acquire(ctx); err != nil {
		return err
	}
	defer r.slots.Release()
	if e != nil {
		info, err := r.folder.lstat(p)
		switch {
		case err != nil && isAbsent(err):
			return nil
		case err != nil:
			return err
		case e.matches(info):
			return nil
		}
	}
	f, err := r.openObject(p)
	if e != nil && (errors.Is(err, tier.ErrNotFound) || errors.Is(err, fs.ErrPermission)) {
		if err := r.dropMissing(e); err != nil { // another program has put something else in its place
			return err
		}
	}
	switch {
	case err == nil:
		r.indexFile(p, f, tick)
		if err := f.file.Close(); err != nil {
			return err
		}
		r.mu.Lock()
		_, items := r.excess(0, 0)
		r.mu.Unlock()
		if items > 0 && !r.o.Shared { // the bound of the index holds while it grows, too
			r.trim()
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		r.locked(func(*index) { r.search.Unreadable++ })
		return nil
	case errors.Is(err, errForeign):
		r.locked(func(*index) { r.search.Foreign++ })
		return nil
	case errors.Is(err, tier.ErrNotFound):
		return nil
	case errors.Is(err, tier.ErrCorrupt):
		r.locked(func(*index) { r.search.Damaged++ })
		if err := r.missDamaged(p, f.info, err); !errors.Is(err, tier.ErrNotFound) {
			return err
		}
		return nil
	}
	return err
}

// trim evicts objects of a root that is above its capacity, as far as objects are evictable: a root may be
// opened with less capacity than before, and other programs add files to a shared tree. It goes in steps, so that
// mu is never held for long.
func (r *root) trim() {
	for r.ctx.Err() == nil {
		r.mu.Lock()
		var victims []*entry
		for len(victims) < trimStep {
			need, items := r.excess(0, 0)
			if need <= 0 && items <= 0 {
				break
			}
			e := r.x.victim(&r.x.leaves, r.o.now(), r.o.MinAge)
			if e == nil {
				break
			}
			r.x.startRemoval(e)
			victims = append(victims, e)
		}
		r.mu.Unlock()
		if len(victims) == 0 || r.evict(victims) != nil {
			return
		}
	}
}

// trimStep is the most objects of a step of trim.
const trimStep = 64

// walker goes through a root with several goroutines. A task is a folder, or a part of a large one, so that
// the goroutines also share the files of a single folder.
type walker struct {
	r    *root
	file func(ctx context.Context, p string, mode fs.FileMode) error
	// empty, if not nil, is called for folders that are empty.
	empty func(p string)

	mu   sync.Mutex // guards what follows
	more *sync.Cond // signals a change of todo or busy
	todo []task     // the last one is done next: deep folders first keep the list short
	busy int        // goroutines that work on a task, and may add others
	err  error      // the first error; the walk goes on
}

// task is a folder to read or, if files is not nil, files that were found in it.
type task struct {
	path  string
	depth int
	files []os.DirEntry
}

// maxTasks bounds the tasks with files, and so the memory for a large folder.
const maxTasks = 64

// walk calls file, from several goroutines, for everything in the root that is not a folder, except in
// .ringcache. It also calls file for folders that can't be read, and for folders at the path of an object. It
// goes on after an error of one file, and returns the first error.
func (r *root) walk(ctx context.Context, file func(ctx context.Context, p string, mode fs.FileMode) error,
	empty func(p string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &walker{r: r, file: file, empty: empty, todo: []task{{path: "."}}}
	w.more = sync.NewCond(&w.mu)
	var wg sync.WaitGroup
	// Half of the slots are left to Get and Put.
	for range max(1, min(2*runtime.GOMAXPROCS(0), r.o.Workers/2)) {
		wg.Go(func() { w.work(ctx) })
	}
	wg.Wait()
	return errors.Join(ctx.Err(), w.err)
}

// work does tasks until there are none and no other goroutine can add one.
func (w *walker) work(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		// A goroutine that is busy may find more folders.
		for len(w.todo) == 0 && w.busy > 0 {
			w.more.Wait()
		}
		if len(w.todo) == 0 {
			return
		}
		d := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.busy++
		w.mu.Unlock()
		var err error
		if d.files != nil {
			w.entries(ctx, d, d.files)
		} else {
			err = w.readDir(ctx, d)
		}
		w.mu.Lock()
		w.busy--
		w.fail(err)
		w.more.Broadcast()
	}
}

// fail keeps the first error. The caller holds mu.
func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// add adds a task for any goroutine. It returns false for files if there are maxTasks: the caller then does
// them itself.
func (w *walker) add(t task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.files != nil && len(w.todo) >= maxTasks {
		return false
	}
	w.todo = append(w.todo, t)
	w.more.Signal()
	return true
}

// readDir reads a folder in parts of 256 names, and hands the full parts to other goroutines.
func (w *walker) readDir(ctx context.Context, d task) error {
	if err := w.r.folder.injected(opReadDir, d.path); err != nil {
		return err
	}
	dir, err := w.r.folder.tree.Root.Open(d.path)
	switch {
	case err != nil && isAbsent(err) && d.path != ".":
		return nil
	case errors.Is(err, fs.ErrPermission): // counted as unreadable, and no reason to search again
		return w.file(ctx, d.path, fs.ModeDir)
	case err != nil:
		return err
	}
	defer dir.Close()
	isEmpty := true
	for ctx.Err() == nil {
		found, err := dir.ReadDir(256)
		isEmpty = isEmpty && len(found) == 0
		if len(found) < 256 || !w.add(task{d.path, d.depth, found}) {
			w.entries(ctx, d, found)
		}
		switch {
		case err == io.EOF: //nolint:errorlint // a folder returns it as it is
			if isEmpty && w.empty != nil {
				w.empty(d.path)
			}
			return nil
		case err != nil && isAbsent(err) && d.path != ".": // it was removed meanwhile
			return nil
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}

// entries handles the names that were found in a folder.
func (w *walker) entries(ctx context.Context, d task, found []os.DirEntry) {
	for _, n := range found {
		if ctx.Err() != nil {
			return
		}
		w.entry(ctx, d, n)
	}
}

// entry handles one name of a folder: it calls file, adds a task for a folder, or does both for a folder at
// the path of an object.
func (w *walker) entry(ctx context.Context, d task, n os.DirEntry) {
	p := n.Name()
	if d.path != "." {
		p = d.path + "/" + p
	}
	if p == ownDir {
		return
	}
	if !n.IsDir() || w.r.layoutHas(p) {
		if err := w.file(ctx, p, n.Type()); err != nil {
			w.mu.Lock()
			w.fail(fmt.Errorf("%s: %w", p, err))
			w.mu.Unlock()
		}
	}
	if n.IsDir() && d.depth < maxDepth {
		w.add(task{path: p, depth: d.depth + 1})
	}
}
