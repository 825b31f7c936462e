package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/tier"
)

// putCall is one call of Put. Objects get their room in the order of the batch; bytes are written side by
// side, and each object has its name after its parent. A stream is read when everything in front of it is
// stored: several streams may be parts of one.
type putCall struct {
	r       *root
	ctx     context.Context
	mine    map[id]*entry // what this call writes or has written
	writing int           // guarded by the lock of the root
	wg      sync.WaitGroup
}

func (r *root) put(ctx context.Context, puts []tier.Put) {
	c := &putCall{r: r, ctx: ctx, mine: map[id]*entry{}}
	entries := make([]*entry, len(puts))
	for i := range puts {
		entries[i], puts[i].Err = c.newEntry(&puts[i])
	}
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

// newEntry makes the entry of what is to be put.
func (c *putCall) newEntry(p *tier.Put) (*entry, error) {
	r, o := c.r, p.Object
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if p.From == nil && int64(len(p.Bytes)) != o.Size {
		return nil, fmt.Errorf("object %v has the size %d, and Put.Bytes are %d: %w", o.Key, o.Size, len(p.Bytes), fs.ErrInvalid)
	}
	path, err := r.pathOf(o.Key)
	if errors.Is(err, tier.ErrNotFound) {
		err = fmt.Errorf("%w: this root is for the space %q", fs.ErrInvalid, r.o.Space)
	}
	if err != nil {
		return nil, err
	}
	if o.Size > mostObject {
		return nil, fmt.Errorf("%w: the most is %d bytes", tier.ErrTooLarge, int64(mostObject))
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
		return nil, fmt.Errorf("%w: its file and folders take %s, and Options.Capacity is %s", tier.ErrTooLarge, takes, capacity)
	}
	return e, nil
}

// holdParents keeps the parents of a batch from going until the batch is stored, and with them their
// own ancestors, which are no leaves.
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
			r.x.wake()
		}
	}
}

// findAncestors brings ancestors into the index that the search has not reached: else one could go
// because its child is not known yet.
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
				if e, _ = r.look(c.ctx, p); e == nil {
					break
				}
			}
			r.mu.Lock() // e may be one that is being written
			at = e.parent
			path, known := e.path(), r.x.entries[at] != nil
			r.mu.Unlock()
			if at != (id{}) && !known {
				p = c.parentOnDisk(path)
			}
		}
	}
}

// parentOnDisk returns the path of the parent that a file names; empty if it has none.
func (c *putCall) parentOnDisk(path string) string {
	r := c.r
	if r.slots.take(c.ctx) != nil {
		return ""
	}
	defer r.slots.free()
	f, err := r.openObject(path)
	if err != nil {
		return ""
	}
	defer f.file.Close()
	return r.parentOf(f.head.Object)
}

// start takes room for an object, and has it written, by this goroutine if now is set.
func (c *putCall) start(p *tier.Put, e *entry, now bool) error {
	if there, err := c.begin(e); there || err != nil {
		return err
	}
	parent := c.mine[e.parent]
	c.mine[e.id] = e
	err := c.room(e)
	if err == nil {
		if err = c.r.slots.take(c.ctx); err != nil {
			c.r.locked(func(x *index) { x.unreserve(e) })
		}
	}
	if err != nil {
		c.r.locked(func(x *index) { x.cancel(e) })
		return err
	}
	c.r.locked(func(*index) { c.writing++ })
	write := func() error {
		err := errPanicked
		path := e.path()
		defer func() {
			c.r.slots.free()
			defer func() {
				if err != nil { // it may have made folders
					c.r.removeFolders(path)
				}
			}()
			c.r.locked(func(x *index) {
				c.writing-- // with the change that room waits for
				if err == nil {
					e.pass = c.r.pass
					x.publish(e)
					return
				}
				x.unreserve(e)
				x.cancel(e)
			})
		}()
		err = c.write(e, p, parent)
		return err
	}
	if now {
		return write()
	}
	c.wg.Go(func() { p.Err = c.r.explainFor("storing", p.Object.Key, write()) })
	return nil
}

// errPanicked is what an object has whose reader panics; nobody sees it.
var errPanicked = errors.New("the reader of the object has panicked")

func (r *root) locked(f func(x *index)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.x)
}

// begin enters e as being written, or reports that the object is there.
func (c *putCall) begin(e *entry) (there bool, err error) {
	r := c.r
	for searched := false; ; {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
		r.mu.Lock()
		old := r.x.entries[e.id]
		unknown := old == nil && !r.authoritative() || old != nil && old.state == present && r.o.Shared
		if old == nil && (!unknown || searched) {
			r.x.begin(e)
			r.mu.Unlock()
			return false, nil
		}
		if old != nil && old.state == present && (!unknown || searched) {
			if old.key != e.key {
				r.mu.Unlock()
				return false, fmt.Errorf("the layout %s has the file %s for another key as well, and its object is there: %w", r.o.Layout.Name(), e.path(), fs.ErrInvalid)
			}
			old.looked = r.o.now().UnixNano()
			r.mu.Unlock()
			return true, nil
		}
		var wait chan struct{}
		if old != nil && old.state != present {
			wait = old.done
			if old.state == writing && c.mine[e.id] != old {
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
		if _, err := r.look(c.ctx, e.path()); err != nil && !errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrPending) && !errors.Is(err, fs.ErrPermission) {
			return false, err // a file that can't be read is replaced
		}
		searched = true
	}
}

// room reserves the room of e, and lets others go for it.
func (c *putCall) room(e *entry) error {
	r := c.r
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		r.mu.Lock()
		x, capacity := r.x, r.o.Capacity
		if (capacity == 0 || x.taken()+e.bytes+int64(x.missing(e))*x.block <= capacity) && (r.most == 0 || len(x.entries)+len(x.places)+x.missing(e) <= r.most) {
			x.reserve(e)
			r.mu.Unlock()
			return nil
		}
		need, items := r.excess(e.bytes, x.missing(e))
		victims := x.choose(need, items, r.o.now(), r.o.MinAge)
		// What is going frees room soon, and what this call still writes may go when it is complete.
		wait := need <= 0 && items <= 0 || x.leaving > 0 || c.writing > 0
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
			return fmt.Errorf("%w for %s: Options.Capacity is %s, the most files and folders are %d, and nothing else may go now", tier.ErrFull, sizes.Text(e.bytes), sizes.Text(capacity), r.most)
		}
	}
}

// excess is how many bytes, and how many files and folders, have to go for so many more bytes and folders,
// beside what goes already. The caller has the lock.
func (r *root) excess(more int64, folders int) (need int64, items int) {
	if r.o.Capacity > 0 {
		need = r.x.taken() - r.x.freeing() + more + int64(folders)*r.x.block - r.o.Capacity
	}
	if r.most > 0 {
		items = r.x.items() + folders - r.most
	}
	return need, items
}

// evict takes the files of claimed objects away.
func (r *root) evict(victims []*entry) error {
	var failed error
	for _, e := range victims {
		failpoint.Hit("disk.evict")
		err := failed // after an error the others stay
		if err == nil {
			err = r.takeAway(e)
		}
		r.mu.Lock()
		if err == nil {
			r.remember(e)
			r.x.drop(e, forRoom)
			r.counted.evicted.Add(1)
		} else {
			r.x.unclaim(e)
			if !errors.Is(err, errRewritten) {
				failed = err
			}
		}
		r.mu.Unlock()
	}
	return failed
}

// errRewritten is a file of a shared tree that somebody has written again.
var errRewritten = errors.New("the file was written again")

// takeAway removes the file of e, which is claimed.
func (r *root) takeAway(e *entry) error {
	if r.o.Shared {
		info, err := r.folder.lstat(e.path())
		if err == nil && info.ModTime().UnixNano() != e.seen {
			r.locked(func(*index) { e.seen = info.ModTime().UnixNano() }) // and modified stays: the next look reads the file
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

// explainFor is explain for an object; errors of the caller's own readers and writers stay as they are.
func (r *root) explainFor(doing string, k tier.Key, err error) error {
	var own asIs
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own.error
	}
	return r.explain(fmt.Sprintf("%s %v", doing, k), err)
}
