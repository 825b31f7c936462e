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

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// maxObject is the largest object, in bytes. With this bound, sums of sizes that files declare can't
// overflow.
const maxObject = 1 << 44

// opened is an open file of an object, with its head. After an error only info is set.
type opened struct {
	file *os.File
	info fs.FileInfo
	head Head
}

// openObject opens a file and reads its head. It fails with ErrNotFound, also for a foreign file; with
// ErrCorrupt, and then returns the information about the file, so that missDamaged removes this file and no
// newer one; or with an error of the system.
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
	if err == nil && r.o.Shared && tree.Sparse(info) {
		err = fmt.Errorf("%w: it has %d bytes, and nearly all are holes", errForeign, info.Size())
	}
	switch {
	case err == nil:
		return opened{file, info, head}, nil
	case errors.Is(err, tier.ErrCorrupt):
	case errors.Is(err, fs.ErrInvalid), errors.Is(err, errForeign):
		// not %w: an fs.ErrInvalid would blame the key
		err = fmt.Errorf("%w: %w: %v", tier.ErrNotFound, errForeign, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%w: the file ends early", tier.ErrCorrupt)
	}
	f := opened{file, info, head}
	f.refreshInfo()
	return opened{info: f.info}, errors.Join(err, file.Close())
}

// refreshInfo reads size and time of the file again. A file that was found damaged may have been truncated or
// written since it was opened, and missDamaged compares them with those of the file at the path.
func (f *opened) refreshInfo() {
	if now, err := f.file.Stat(); err == nil {
		f.info = now
	}
}

// accept verifies what a layout parsed from a head: that the sizes add up, and that the object belongs to
// this root and to this path. It sets the space if the layout has none.
func (r *root) accept(h *Head, path string, size int64) error {
	if h.Object.Space == "" {
		h.Object.Space = r.o.Space
	}
	o := &h.Object
	if o.Size > maxObject || h.Length < 0 || o.Size < 0 || h.Length+o.Size != size {
		return fmt.Errorf("%w: a head of %d bytes and %d bytes do not make a file of %d", tier.ErrCorrupt, h.Length,
			o.Size, size)
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

// findEntry returns the entry of a path that is present, and the tick for indexFile. If entry and error are
// nil, the index is not complete, and the file may be there without an entry.
func (r *root) findEntry(path string) (e *entry, tick uint64, err error) {
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
	case e.state == removing:
		return nil, 0, tier.ErrNotFound
	}
	e.lastAsked = r.o.now().UnixNano()
	return e, r.x.tick, nil
}

// indexFile enters a file that was opened into the index, or replaces the entry of a file that another
// program has replaced. tick is that of the index before the file was opened. It returns nil if this level
// removes, has removed or writes the file of the path meanwhile: an entry must not come back after its file
// was removed.
func (r *root) indexFile(path string, f opened, tick uint64) *entry {
	e := r.newEntry(path, f.head.Object)
	e.setFile(f.info)
	e.bytes = r.x.rounded(e.size)
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.x.entries[e.id]; old != nil {
		if old.state != present {
			return nil
		}
		if r.othersWrite() && !old.matches(f.info) {
			e.lastSearch = r.searchNumber
			r.x.replace(old, e)
			return e
		}
		old.lastSearch = r.searchNumber
		return old
	}
	// A complete index lacks only files that were removed: this one since it was opened.
	if r.authoritative() || r.x.removedSince(e.id, tick) {
		return nil
	}
	e.lastSearch = r.searchNumber
	r.x.insert(e)
	r.x.makePresent(e)
	return e
}

// othersWrite reports whether processes without the lock of this level change the files.
func (r *root) othersWrite() bool { return r.o.Shared || r.o.ReadOnly }

// entryOf makes the entry of a path. It is not in the index yet.
func entryOf(p string) *entry {
	return &entry{id: idOf(p), folder: subfolderOf(p), base: strings.Clone(path.Base(p)), leaf: -1, tenantLeaf: -1}
}

// newEntry makes the entry of an object. The strings of the object are not kept: they may be views of a
// buffer.
func (r *root) newEntry(path string, o tier.Object) *entry {
	e := entryOf(path)
	e.key, e.cost = hashOf(o.Key), o.Cost
	if o.Tenant != "" {
		e.tenant = &tenant{name: strings.Clone(o.Tenant), leaves: evict.NewCandidates(placeOfTenantLeaf)}
	}
	if p := r.parentOf(o); p != "" {
		e.parent = idOf(p)
	}
	return e
}

// parentOf returns the path of an object's parent; empty if the object has none, or the layout can't name it.
func (r *root) parentOf(o tier.Object) string {
	if k, ok := o.ParentKey(); ok {
		if p, err := r.o.Layout.Path(k); err == nil {
			return p
		}
	}
	return ""
}

// wrongKey returns a miss: the layout has the same path for two keys, and the file has the object of the
// other key.
func (r *root) wrongKey(path string) error {
	return fmt.Errorf("%w: %w: the file %s has the object of another key", tier.ErrNotFound, errForeign, path)
}

// findKey is findFile, and a miss if the file has the object of another key.
func (r *root) findKey(ctx context.Context, path string, k tier.Key) (*entry, error) {
	e, err := r.findFile(ctx, path)
	if err == nil && e.key != hashOf(k) {
		return nil, r.wrongKey(path)
	}
	return e, err
}

// readHead returns the object that the head of the file of a key describes, and the entry of the file.
func (r *root) readHead(ctx context.Context, path string, k tier.Key) (tier.Object, *entry, error) {
	e, tick, err := r.findEntry(path)
	if err != nil {
		return tier.Object{}, nil, err
	}
	if err := r.heads.Acquire(ctx); err != nil {
		return tier.Object{}, nil, err
	}
	defer r.heads.Release()
	o, e, err := r.askFound(path, e, tick)
	if err == nil && o.Key != k {
		err = r.wrongKey(path)
	}
	return o, e, err
}

// askFound is openFound for callers that need only the head. It notes that the object was asked for.
func (r *root) askFound(path string, e *entry, tick uint64) (tier.Object, *entry, error) {
	f, e, err := r.openFound(path, e, tick)
	if err != nil {
		return tier.Object{}, nil, err
	}
	if err := f.file.Close(); err != nil {
		return tier.Object{}, nil, err
	}
	if e == nil {
		return tier.Object{}, nil, tier.ErrNotFound
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.lastAsked = r.o.now().UnixNano()
	return f.head.Object, e, nil
}

// openFound opens the file of a path after findEntry, and corrects the index: an entry whose file is gone is
// dropped, a file without an entry gets one, and a damaged file is removed. The entry that it returns is nil
// if the file was removed meanwhile.
func (r *root) openFound(path string, e *entry, tick uint64) (opened, *entry, error) {
	f, err := r.openObject(path)
	switch {
	case errors.Is(err, tier.ErrCorrupt):
		return opened{}, nil, r.missDamaged(path, f.info, err)
	case errors.Is(err, tier.ErrNotFound):
		if away := r.dropMissing(e); away != nil {
			return opened{}, nil, away
		}
		return opened{}, nil, err
	case err != nil:
		return opened{}, nil, err
	}
	if e == nil || r.othersWrite() && !e.matches(f.info) {
		e = r.indexFile(path, f, tick)
	}
	return f, e, nil
}

// findFile returns the entry of a path that is present. If the index can be wrong about it, since the index
// is not complete or others write to the folder, findFile looks at the file.
func (r *root) findFile(ctx context.Context, path string) (*entry, error) {
	e, tick, err := r.findEntry(path)
	if err != nil || e != nil && !r.othersWrite() {
		return e, err
	}
	if err := r.slots.Acquire(ctx); err != nil {
		return nil, err
	}
	defer r.slots.Release()
	if e != nil {
		info, err := r.folder.lstat(path)
		switch {
		case err == nil && e.matches(info):
			return e, nil
		case err != nil && !isAbsent(err):
			return nil, err
		}
	}
	_, e, err = r.askFound(path, e, tick)
	return e, err
}

// dropMissing drops the entry of a file that is not there any more or is foreign. It fails if the whole
// folder is gone: then the entries stay, since the folder may come back.
func (r *root) dropMissing(e *entry) error {
	if err := r.folder.checkThere(); err != nil {
		return err
	}
	if e == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.x.entries[e.id] == e && e.state == present {
		r.x.dropGone(e)
	}
	return nil
}

// stat returns the description of the object of a key.
func (r *root) stat(ctx context.Context, k tier.Key) (tier.Object, error) {
	path, err := r.pathOf(k)
	if err != nil {
		return tier.Object{}, err
	}
	o, _, err := r.readHead(ctx, path, k)
	return o, err
}
