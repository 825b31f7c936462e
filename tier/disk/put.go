package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/tier"
)

// putCall is one call of Put. It reserves room in the order of the batch, so that earlier objects come first
// when not all fit. It writes the bytes side by side, and renames each file after that of its parent, so that
// a kill never leaves a child without its parent. A stream (From) is read after all objects before it are
// stored: several streams may be parts of one reader.
type putCall struct {
	r       *root
	ctx     context.Context
	own     map[id]*entry // entries that this call writes or has written
	writing int           // objects that it is writing; guarded by root.mu
	wg      sync.WaitGroup
}

// put stores a batch. Each object has its own error.
func (r *root) put(ctx context.Context, puts []tier.Put) {
	c := &putCall{r: r, ctx: ctx, own: map[id]*entry{}}
	entries := make([]*entry, len(puts))
	for i := range puts {
		entries[i], puts[i].Err = c.newEntry(&puts[i])
	}
	// Parents are held before the first reservation, which may evict.
	release := c.holdParents(puts, entries)
	defer release()
	for i := range puts {
		p := &puts[i]
		if p.Err != nil {
			p.Err = r.explainFor("storing", p.Object.Key, p.Err)
			continue
		}
		if p.From != nil {
			c.wg.Wait()
		}
		if err := c.start(p, entries[i], p.From != nil || i == len(puts)-1); err != nil {
			p.Err = r.explainFor("storing", p.Object.Key, err)
		}
	}
	c.wg.Wait()
}

// newEntry checks one object of the batch, and makes its entry with the size of its file.
func (c *putCall) newEntry(p *tier.Put) (*entry, error) {
	r, o := c.r, p.Object
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if p.From == nil && int64(len(p.Bytes)) != o.Size {
		return nil, fmt.Errorf("object %v has the size %d, and Put.Bytes has %d bytes: %w", o.Key, o.Size,
			len(p.Bytes), fs.ErrInvalid)
	}
	path, err := r.pathOf(o.Key)
	if errors.Is(err, tier.ErrNotFound) {
		err = fmt.Errorf("%w: this root is for the space %q", fs.ErrInvalid, r.o.Space)
	}
	if err != nil {
		return nil, err
	}
	if o.Size > maxObject {
		return nil, fmt.Errorf("%w: the most is %d bytes", tier.ErrTooLarge, int64(maxObject))
	}
	head, err := r.o.Layout.AppendHead(nil, o, 0)
	if err != nil {
		return nil, err
	}
	e := r.newEntry(path, o)
	e.size = int64(len(head)) + o.Size
	e.bytes = r.x.rounded(e.size)
	if takes := e.bytes + int64(strings.Count(path, "/"))*r.x.block; r.o.Capacity > 0 && takes > r.o.Capacity {
		takes, capacity := sizes.Above(takes, r.o.Capacity)
		return nil, fmt.Errorf("%w: its file and folders take %s, and Options.Capacity is %s: raise it",
			tier.ErrTooLarge, takes, capacity)
	}
	if quota := r.o.quotas.Load().For(o.Tenant); quota > 0 && e.bytes > quota {
		takes, quota := sizes.Above(e.bytes, quota)
		return nil, fmt.Errorf("%w: its file takes %s, and the quota of the tenant %q is %s",
			tier.ErrTooLarge, takes, o.Tenant, quota)
	}
	return e, nil
}

// holdParents keeps the parents of a batch from being evicted until the batch is stored. Their own ancestors
// have a child, and are no candidates anyway.
func (c *putCall) holdParents(puts []tier.Put, entries []*entry) (release func()) {
	r := c.r
	var parents []id
	var paths []string
	for i, e := range entries {
		if e != nil && e.parent != (id{}) {
			parents = append(parents, e.parent)
			paths = append(paths, r.parentOf(puts[i].Object))
		}
	}
	r.mu.Lock()
	// A parent that is not here, or is in the same batch, is held by its path all the same.
	for _, p := range parents {
		r.x.holds[p]++
	}
	known := r.authoritative()
	r.mu.Unlock()
	if !known {
		c.findAncestors(paths)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range parents {
			if r.x.holds[p]--; r.x.holds[p] == 0 {
				delete(r.x.holds, p)
			}
		}
		if len(parents) > 0 {
			r.x.wake() // the parents may be evictable now
		}
	}
}

// findAncestors enters ancestors into the index that the first search has not reached. Without that, an
// ancestor that the search finds next could be evicted, because the index does not have its child yet.
func (c *putCall) findAncestors(paths []string) {
	r := c.r
	seen := map[id]bool{}
	for _, p := range paths {
		for at := idOf(p); at != (id{}) && !seen[at]; {
			seen[at] = true
			r.mu.Lock()
			e := r.x.entries[at]
			r.mu.Unlock()
			if e == nil {
				if e, _ = r.findFile(c.ctx, p); e == nil {
					break
				}
			}
			r.mu.Lock() // link may change the parent of e
			at = e.parent
			path, known := e.path(), r.x.entries[at] != nil
			r.mu.Unlock()
			if at != (id{}) && !known {
				p = c.parentOnDisk(path)
			}
		}
	}
}

// parentOnDisk returns the path of the parent that the head of a file names; empty if it names none.
func (c *putCall) parentOnDisk(path string) string {
	r := c.r
	if r.slots.Acquire(c.ctx) != nil {
		return ""
	}
	defer r.slots.Release()
	f, err := r.openObject(path)
	if err != nil {
		return ""
	}
	defer f.file.Close()
	return r.parentOf(f.head.Object)
}

// start registers an object, reserves its room, and writes it: in this goroutine if now is set, else in a new
// one. An object that is there already is not written again.
func (c *putCall) start(p *tier.Put, e *entry, now bool) error {
	if stored, err := c.register(e); stored || err != nil {
		return err
	}
	parent := c.own[e.parent]
	c.own[e.id] = e
	err := c.reserveRoom(e)
	if err == nil {
		if err = c.r.slots.Acquire(c.ctx); err != nil {
			c.r.locked(func(x *index) { x.unreserve(e) })
		}
	}
	if err != nil {
		c.r.locked(func(x *index) { x.cancelWrite(e) })
		return err
	}
	c.r.locked(func(*index) { c.writing++ })
	if now {
		return c.store(p, e, parent)
	}
	c.wg.Go(func() { p.Err = c.r.explainFor("storing", p.Object.Key, c.store(p, e, parent)) })
	return nil
}

// store writes the file of e, and then moves e on: to present, or out of the index with its reservation. It
// does so also if the reader of a stream panics, since no other call may touch an entry that is being
// written.
func (c *putCall) store(p *tier.Put, e, parent *entry) (err error) {
	path := e.path() // unreserve replaces e.folder
	err = errPanicked
	defer func() {
		c.r.slots.Release()
		c.r.locked(func(x *index) {
			c.writing-- // in one step with the change of room, for reserveRoom of another object
			if err == nil {
				// A search that is under way may have passed the folder already: it must not take e for
				// missing.
				e.lastSearch = c.r.searchNumber
				x.publish(e)
				return
			}
			x.unreserve(e)
			x.cancelWrite(e)
		})
		if err != nil { // the write may have made folders
			c.r.removeFolders(path)
		}
	}()
	return c.write(e, p, parent)
}

// errPanicked stands for a write that has not returned: the reader (Put.From) panicked. The panic itself is
// what the caller gets.
var errPanicked = errors.New("the reader of the object has panicked")

// locked calls f with mu held.
func (r *root) locked(f func(x *index)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.x)
}

// register enters e into the index as being written, or reports that the object is stored already. It waits
// while another call removes the file of the same path. An object that another call is writing is ErrPending.
func (c *putCall) register(e *entry) (stored bool, err error) {
	r := c.r
	for searched := false; ; {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
		r.mu.Lock()
		old := r.x.entries[e.id]
		// Twice the index is not enough: it may lack a file, and the file of an entry may have been removed
		// by others. Then findFile corrects it, once.
		unknown := old == nil && !r.authoritative() || old != nil && old.state == present && r.o.Shared
		if old == nil && (!unknown || searched) {
			r.x.startWrite(e)
			r.mu.Unlock()
			return false, nil
		}
		if old != nil && old.state == present && (!unknown || searched) {
			if old.key != e.key {
				r.mu.Unlock()
				return false, fmt.Errorf("the layout %s has the file %s for another key, too, whose object is there: delete it: %w",
					r.o.Layout.Name(), e.path(), fs.ErrInvalid)
			}
			old.lastAsked = r.o.now().UnixNano()
			r.mu.Unlock()
			return true, nil
		}
		var wait chan struct{}
		if old != nil && old.state != present {
			wait = old.done
			// The same object may be in the batch twice: the second one waits for the first.
			if old.state == writing && c.own[e.id] != old {
				r.mu.Unlock()
				return false, tier.ErrPending
			}
		}
		r.mu.Unlock()
		if wait != nil {
			select {
			case <-wait:
			case <-c.ctx.Done():
			}
			continue
		}
		_, err := r.findFile(c.ctx, e.path())
		// A file that this user may not read is replaced.
		if err != nil && !errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrPending) &&
			!errors.Is(err, fs.ErrPermission) {
			return false, err
		}
		searched = true
	}
}

// reserveRoom reserves the room of e, and evicts other objects for it. It waits for room that is about to
// become free, and fails with ErrFull if nothing can be evicted.
func (c *putCall) reserveRoom(e *entry) error {
	r := c.r
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		r.mu.Lock()
		x := r.x
		lack := r.lackFor(e)
		if lack == nil {
			x.reserve(e)
			r.mu.Unlock()
			return nil
		}
		// Removals free room soon, and what this call still writes can be evicted when it is complete.
		wait := lack.enough() || lack.removals || c.writing > 0
		// The removal of the victims starts here, under the lock, so that no other Put counts on the same
		// room.
		victims := x.chooseVictims(lack.leaves, lack.enough, r.o.now(), r.o.MinAge)
		changed := x.changed
		r.mu.Unlock()
		switch {
		case len(victims) > 0:
			if err := r.evict(victims); err != nil {
				return err
			}
		case wait:
			select {
			case <-changed:
			case <-c.ctx.Done():
			}
		default:
			return lack.full()
		}
	}
}

// lack is why there is no room for an object.
type lack struct {
	leaves   *evict.Candidates[*entry] // some of which have to go
	enough   func() bool               // reports that there will be room when the removals that have begun have ended
	removals bool                      // some have begun already
	full     func() error              // what to answer if nothing can go
}

// lackFor returns what is in the way of an object, nil if there is room: first the quota of its tenant, then the
// capacity. The caller holds mu.
func (r *root) lackFor(e *entry) *lack {
	x := r.x
	if t := x.tenantOf(e); t != nil {
		if quota := r.o.quotas.Load().For(t.name); quota > 0 && t.bytes+t.reserved+e.bytes > quota {
			enough := func() bool { return t.bytes-t.removing+t.reserved+e.bytes <= quota }
			return &lack{&t.leaves, enough, t.removing > 0, func() error {
				return fmt.Errorf("%w for %s: the quota of the tenant %q is %s, and nothing else that the tenant has can be "+
					"evicted now", tier.ErrFull, sizes.Text(e.bytes), t.name, sizes.Text(quota))
			}}
		}
	}
	capacity, folders := r.o.Capacity, x.missing(e)
	bytes, items := x.occupied()+e.bytes+int64(folders)*x.block, len(x.entries)+len(x.subfolders)+folders
	if (capacity == 0 || bytes <= capacity) && (r.maxItems == 0 || items <= r.maxItems) {
		return nil
	}
	enough := func() bool {
		need, items := r.excess(e.bytes, folders)
		return need <= 0 && items <= 0
	}
	return &lack{&x.leaves, enough, x.removing > 0, func() error {
		return fmt.Errorf("%w for %s: Options.Capacity is %s, the most files and folders are %d, and nothing else can be "+
			"evicted now: raise the capacity, or try again later", tier.ErrFull, sizes.Text(e.bytes),
			sizes.Text(capacity), r.maxItems)
	}}
}

// excess returns how many bytes, and how many files and folders, have to be evicted for so many more bytes
// and folders, beside those that are being removed. The caller holds mu.
func (r *root) excess(more int64, folders int) (need int64, items int) {
	if r.o.Capacity > 0 {
		need = r.x.occupied() - r.x.leavingBytes() + more + int64(folders)*r.x.block - r.o.Capacity
	}
	if r.maxItems > 0 {
		items = r.x.items() + folders - r.maxItems
	}
	return need, items
}

// evict removes the files of victims, which are removing. After an error the others become present again.
func (r *root) evict(victims []*entry) error {
	var failed error
	for _, e := range victims {
		failpoint.Hit("disk.evict")
		err := failed
		if err == nil {
			err = r.removeVictim(e)
		}
		// The entry leaves the index after the file is gone: a Put of the same key that comes earlier waits,
		// so that this removal can't take its new file.
		r.mu.Lock()
		if err == nil {
			r.noteRemoved(e)
			r.x.endRemoval(e, evicted)
			r.counted.evicted.Add(1)
		} else {
			r.x.cancelRemoval(e)
			if !errors.Is(err, errRewritten) {
				failed = err
			}
		}
		r.mu.Unlock()
	}
	return failed
}

// errRewritten is a victim of a shared tree that another program has written again.
var errRewritten = errors.New("the file was written again")

// removeVictim removes the file of e, which is removing. In a shared tree the file stays if its time is not
// the newest that was seen: it is young then.
func (r *root) removeVictim(e *entry) error {
	if r.o.Shared {
		info, err := r.folder.lstat(e.path())
		if err == nil && info.ModTime().UnixNano() != e.newest {
			// e.modified stays, so that the next lookup reads the head again.
			r.locked(func(*index) { e.newest = info.ModTime().UnixNano() })
			return errRewritten
		}
	}
	err := r.folder.remove(e.path())
	if err == nil || isAbsent(err) {
		failpoint.Hit("disk.removed")
		r.removeFolders(e.path())
		return nil
	}
	return err
}

// explainFor is explain for an object. A callerError is returned unchanged.
func (r *root) explainFor(doing string, k tier.Key, err error) error {
	var own callerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.error
	}
	return r.explain(fmt.Sprintf("%s %v", doing, k), err)
}
