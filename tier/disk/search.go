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

// Search is how far the index of a root is.
type Search struct {
	Files   int64 // seen by this search so far
	Foreign int64 // of them, files that are none of the layout's; they are left alone
	Damaged int64 // of them, files whose head was damaged, or is not complete yet
	// Unreadable are, of them, files and folders that this user may not read.
	Unreadable int64
	// Complete is set when a search has seen the whole folder: the index has every object. A tree
	// that others write as well is searched again later.
	Complete bool
	Err      error // why the last search did not see everything; another one follows
}

// mostDepth bounds the folders in folders that a search enters.
const mostDepth = 16

// searchAll searches the folder until that was done without an error, or again and again if others
// write to it.
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
		if first {
			close(r.indexed)
		}
		if !r.o.ReadOnly {
			r.trim()
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

// searchOnce brings every file of the folder into the index, and forgets what is not there any more.
func (r *root) searchOnce() error {
	r.mu.Lock()
	r.pass++
	pass := r.pass
	r.search.Files, r.search.Foreign, r.search.Damaged, r.search.Unreadable = 0, 0, 0, 0
	// Whoever opened a file two searches ago is done with it.
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
	if err := r.folder.alive(); err != nil {
		return err
	}
	empty := r.removeEmpty
	if r.o.Shared {
		empty = nil
		defer r.removeEmptied()
	}
	if err := r.walk(r.ctx, r.searchFile, empty); err != nil {
		return err
	}
	if err := r.folder.alive(); err != nil { // else folders that were not there are no error
		return err
	}
	for _, e := range old {
		r.mu.Lock()
		unseen := e.pass != pass
		r.mu.Unlock()
		if !unseen {
			continue
		}
		if _, err := r.folder.lstat(e.path()); err != nil && isAbsent(err) {
			if err := r.lost(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// searchFile brings one file into the index.
func (r *root) searchFile(ctx context.Context, p string, mode fs.FileMode) error {
	regular := mode.IsRegular()
	r.mu.Lock()
	r.search.Files++
	e, tick := r.x.entries[idOf(p)], r.x.tick
	// What this process writes or takes away just now is left alone, and what nobody else changes is known.
	known := e != nil && (!r.o.Shared || e.state != present)
	if e != nil {
		e.pass = r.pass
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
	if err := r.slots.take(ctx); err != nil {
		return err
	}
	defer r.slots.free()
	if e != nil {
		info, err := r.folder.lstat(p)
		switch {
		case err != nil && isAbsent(err):
			return nil
		case err != nil:
			return err
		case e.is(info):
			return nil
		}
	}
	f, err := r.openObject(p)
	if e != nil && (errors.Is(err, tier.ErrNotFound) || errors.Is(err, fs.ErrPermission)) { // others have put something else there
		if away := r.lost(e); away != nil {
			return away
		}
	}
	switch {
	case err == nil:
		r.adopt(p, f, tick)
		if err := f.file.Close(); err != nil {
			return err
		}
		r.mu.Lock()
		_, items := r.excess(0, 0)
		r.mu.Unlock()
		if items > 0 && !r.o.Shared { // the memory for the index has a bound while it grows, too
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
		if err := r.damage(p, f.info, err); !errors.Is(err, tier.ErrNotFound) {
			return err
		}
		return nil
	}
	return err
}

// trim makes a root that has more than its capacity smaller, as far as objects may go.
func (r *root) trim() {
	for r.ctx.Err() == nil {
		r.mu.Lock()
		var victims []*entry
		for need, items := r.excess(0, 0); (need > 0 || items > 0) && len(victims) < sample; need, items = r.excess(0, 0) {
			e := r.x.victim(r.o.now(), r.o.MinAge)
			if e == nil {
				break
			}
			r.x.claim(e)
			victims = append(victims, e)
		}
		r.mu.Unlock()
		if len(victims) == 0 || r.evict(victims) != nil {
			return
		}
	}
}

// walker goes through a root, with several goroutines: a folder, or a part of a large one, is a task.
type walker struct {
	r    *root
	file func(ctx context.Context, p string, mode fs.FileMode) error
	// empty, if not nil, is told of folders in which nothing is.
	empty func(p string)

	mu   sync.Mutex
	more *sync.Cond
	todo []task
	busy int
	err  error // the first; the walk goes on
}

// task is a folder that is to be read, or files that were found in one.
type task struct {
	path  string
	depth int
	files []os.DirEntry
}

// mostTasks bounds the tasks with files, and so the memory for a large folder.
const mostTasks = 64

// walk calls file for everything in the root that is no folder, side by side, but what is in .ringcache; and
// for folders that can't be read, or lie where the layout has files. It goes on after an error of one file,
// and returns the first.
func (r *root) walk(ctx context.Context, file func(ctx context.Context, p string, mode fs.FileMode) error, empty func(p string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &walker{r: r, file: file, empty: empty, todo: []task{{path: "."}}}
	w.more = sync.NewCond(&w.mu)
	var wg sync.WaitGroup
	// Half of the open files are left to those who ask.
	for range max(1, min(2*runtime.GOMAXPROCS(0), r.o.Workers/2)) {
		wg.Go(func() { w.work(ctx) })
	}
	wg.Wait()
	return errors.Join(ctx.Err(), w.err)
}

func (w *walker) work(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
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

func (w *walker) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// add adds a task for somebody else, unless there are enough.
func (w *walker) add(t task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.files != nil && len(w.todo) >= mostTasks {
		return false
	}
	w.todo = append(w.todo, t)
	w.more.Signal()
	return true
}

func (w *walker) readDir(ctx context.Context, d task) error {
	if err := w.r.folder.failing(opList, d.path); err != nil {
		return err
	}
	dir, err := w.r.folder.root.Open(d.path)
	switch {
	case err != nil && isAbsent(err) && d.path != ".":
		return nil
	case errors.Is(err, fs.ErrPermission):
		return w.file(ctx, d.path, fs.ModeDir)
	case err != nil:
		return err
	}
	defer dir.Close()
	none := true
	for ctx.Err() == nil {
		found, err := dir.ReadDir(256)
		none = none && len(found) == 0
		if len(found) < 256 || !w.add(task{d.path, d.depth, found}) {
			w.entries(ctx, d, found)
		}
		switch {
		case err == io.EOF: //nolint:errorlint // a folder returns it as it is
			if none && w.empty != nil {
				w.empty(d.path)
			}
			return nil
		case err != nil && isAbsent(err) && d.path != ".": // it went meanwhile
			return nil
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}

func (w *walker) entries(ctx context.Context, d task, found []os.DirEntry) {
	for _, n := range found {
		if ctx.Err() != nil {
			return
		}
		w.entry(ctx, d, n)
	}
}

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
	if n.IsDir() && d.depth < mostDepth {
		w.add(task{path: p, depth: d.depth + 1})
	}
}
