package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/ringcache/ringcache/tier"
)

// mostObject is the largest object, in bytes: what a file declares must not overflow sums.
const mostObject = 1 << 44

// A file of at least leastHollow bytes is hollow if the medium has fewer than 1/hollowShare of them. Anybody
// can make one of any size at no cost.
const (
	leastHollow = 1 << 30
	hollowShare = 1024
)

// opened is the file of an object whose head is right.
type opened struct {
	file *os.File
	info fs.FileInfo
	head Head
}

// openObject opens a file and reads its head. Its errors are ErrNotFound, also for another program's
// file; ErrCorrupt, with the information about the file; and those of the system.
func (r *root) openObject(path string) (opened, error) {
	file, info, err := r.folder.open(path)
	switch {
	case errors.Is(err, errForeign):
		return opened{}, fmt.Errorf("%w: %w", tier.ErrNotFound, err)
	case err != nil && isAbsent(err):
		return opened{}, tier.ErrNotFound
	case err != nil:
		return opened{}, err
	}
	head, err := r.o.Layout.ParseHead(path, reader{r.folder, file, path}, info.Size())
	if err == nil {
		err = r.accept(&head, path, info.Size())
	}
	if err == nil && r.o.Shared && hollow(info) { // else a Get would take memory for all of it
		err = fmt.Errorf("%w: it has %d bytes, and next to nothing is in them", errForeign, info.Size())
	}
	switch {
	case err == nil:
		return opened{file, info, head}, nil
	case errors.Is(err, tier.ErrCorrupt):
	case errors.Is(err, fs.ErrInvalid), errors.Is(err, errForeign):
		err = fmt.Errorf("%w: %w: %v", tier.ErrNotFound, errForeign, err) // no fs.ErrInvalid: the key is not wrong
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%w: the file ends early", tier.ErrCorrupt)
	}
	f := opened{file, info, head}
	f.lookAgain()
	return opened{info: f.info}, errors.Join(err, file.Close())
}

// lookAgain brings info up to date: what was found damaged may have been cut, or written, since it was opened.
func (f *opened) lookAgain() {
	if now, err := f.file.Stat(); err == nil {
		f.info = now
	}
}

// accept verifies what a layout found in a file.
func (r *root) accept(h *Head, path string, size int64) error {
	if h.Object.Space == "" {
		h.Object.Space = r.o.Space
	}
	o := &h.Object
	if o.Size > mostObject || h.Length < 0 || o.Size < 0 || h.Length+o.Size != size {
		return fmt.Errorf("%w: a head of %d bytes and %d bytes make no file of %d", tier.ErrCorrupt, h.Length, o.Size, size)
	}
	if o.Validate() != nil {
		return fmt.Errorf("%w: %w", tier.ErrCorrupt, o.Validate())
	}
	if r.o.Space != "" && o.Space != r.o.Space {
		return fmt.Errorf("%w: it is of the space %q", errForeign, o.Space)
	}
	if own, err := r.o.Layout.Path(o.Key); err != nil || own != path {
		return fmt.Errorf("%w: the object is %v", errForeign, o.Key)
	}
	return nil
}

// find returns the entry of a path that is present, and the tick for adopt. If entry and error are nil, the
// file may be there without being in the index.
func (r *root) find(path string) (e *entry, tick uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = r.x.entries[idOf(path)]
	switch {
	case e == nil && r.authoritative():
		return nil, 0, tier.ErrNotFound
	case e == nil:
		return nil, r.x.tick, nil
	case e.state == writing:
		return nil, 0, tier.ErrPending
	case e.state == leaving:
		return nil, 0, tier.ErrNotFound
	}
	e.looked = r.o.now().UnixNano()
	return e, r.x.tick, nil
}

// adopt enters a file that was found into the index, also instead of one that others have replaced by it. It
// returns nil if the file is not there any more.
func (r *root) adopt(path string, f opened, tick uint64) *entry {
	e := r.newEntry(path, f.head.Object)
	e.wrote(f.info)
	e.bytes = r.x.rounded(e.size)
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.x.entries[e.id]; old != nil {
		if old.state != present {
			return nil
		}
		if r.o.Shared || r.o.ReadOnly {
			if !old.is(f.info) { // others have replaced it
				e.pass = r.pass
				r.x.replace(old, e)
				return e
			}
		}
		old.pass = r.pass
		return old
	}
	// What a complete index does not have was taken away since the file was opened.
	if r.authoritative() || r.x.removedSince(e.id, tick) {
		return nil
	}
	e.pass = r.pass
	r.x.enter(e)
	r.x.add(e)
	return e
}

// entryOf makes the entry of a file, which is not entered.
func entryOf(p string) *entry {
	return &entry{id: idOf(p), folder: placeOf(p), base: strings.Clone(path.Base(p)), leaf: -1}
}

func (r *root) newEntry(path string, o tier.Object) *entry {
	e := entryOf(path)
	e.key, e.cost = hashOf(o.Key), o.Cost
	if o.Tenant != "" {
		e.tenant = &tenant{name: strings.Clone(o.Tenant)}
	}
	if p := r.parentOf(o); p != "" {
		e.parent = idOf(p)
	}
	return e
}

// parentOf returns the path of an object's parent; empty if there is none, or none can be here.
func (r *root) parentOf(o tier.Object) string {
	if k, ok := o.ParentKey(); ok {
		if p, err := r.o.Layout.Path(k); err == nil {
			return p
		}
	}
	return ""
}

// anothers is a miss: the layout has one file for two keys, and the other one's object is there.
func (r *root) anothers(path string) error {
	return fmt.Errorf("%w: %w: the object in the file %s is another one's", tier.ErrNotFound, errForeign, path)
}

// lookFor is look for a key.
func (r *root) lookFor(ctx context.Context, path string, k tier.Key) (*entry, error) {
	e, err := r.look(ctx, path)
	if err == nil && e.key != hashOf(k) {
		return nil, r.anothers(path)
	}
	return e, err
}

// describe reads what the file of a key says about its object. The entry is nil if the file was taken away meanwhile.
func (r *root) describe(ctx context.Context, path string, k tier.Key) (tier.Object, *entry, error) {
	e, tick, err := r.find(path)
	if err != nil {
		return tier.Object{}, nil, err
	}
	if err := r.heads.take(ctx); err != nil {
		return tier.Object{}, nil, err
	}
	defer r.heads.free()
	f, e, err := r.openFound(path, e, tick)
	if err != nil {
		return tier.Object{}, nil, err
	}
	if err := f.file.Close(); err != nil {
		return tier.Object{}, nil, err
	}
	if f.head.Object.Key != k {
		return tier.Object{}, nil, r.anothers(path)
	}
	if e == nil {
		return tier.Object{}, nil, tier.ErrNotFound
	}
	r.mu.Lock()
	e.looked = r.o.now().UnixNano()
	r.mu.Unlock()
	return f.head.Object, e, nil
}

// openFound opens the file that find has found, or not, and brings the index up to date with what it is. The
// entry that it returns is nil if the file was taken away meanwhile.
func (r *root) openFound(path string, e *entry, tick uint64) (opened, *entry, error) {
	f, err := r.openObject(path)
	switch {
	case errors.Is(err, tier.ErrCorrupt):
		return opened{}, nil, r.damage(path, f.info, err)
	case errors.Is(err, tier.ErrNotFound):
		if away := r.lost(e); away != nil {
			return opened{}, nil, away
		}
		return opened{}, nil, err
	case err != nil:
		return opened{}, nil, err
	}
	if e == nil || (r.o.Shared || r.o.ReadOnly) && !e.is(f.info) {
		e = r.adopt(path, f, tick)
	}
	return f, e, nil
}

// look returns the entry of a path that is present, and searches its file if need be.
func (r *root) look(ctx context.Context, path string) (*entry, error) {
	e, tick, err := r.find(path)
	if err != nil || e != nil && !r.o.Shared && !r.o.ReadOnly {
		return e, err
	}
	if err := r.slots.take(ctx); err != nil {
		return nil, err
	}
	defer r.slots.free()
	if e != nil { // others may have changed or removed it
		info, err := r.folder.lstat(path)
		switch {
		case err == nil && e.is(info):
			return e, nil
		case err != nil && !isAbsent(err):
			return nil, err
		}
	}
	f, e, err := r.openFound(path, e, tick)
	if err != nil {
		return nil, err
	}
	if err := f.file.Close(); err != nil {
		return nil, err
	}
	if e == nil {
		return nil, tier.ErrNotFound
	}
	r.mu.Lock()
	e.looked = r.o.now().UnixNano()
	r.mu.Unlock()
	return e, nil
}

// lost forgets an object whose file is not there, or another one, unless all are gone with the folder.
func (r *root) lost(e *entry) error {
	if err := r.folder.alive(); err != nil {
		return err
	}
	if e == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.x.entries[e.id] == e && e.state == present {
		r.x.forget(e)
	}
	return nil
}

// stat describes the object of a key.
func (r *root) stat(ctx context.Context, k tier.Key) (tier.Object, error) {
	path, err := r.pathOf(k)
	if err != nil {
		return tier.Object{}, err
	}
	o, _, err := r.describe(ctx, path, k)
	return o, err
}

// nameOf is a path as a name of one file.
func nameOf(path string) string { return strings.ReplaceAll(path, "/", "+") }
