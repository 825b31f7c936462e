package disk

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// blockBytes is how much is read or written, and summed, at a time. A block stays in the processor's cache
// for the checksum.
const blockBytes = 256 << 10

// blocks lends memory for objects that are streamed. Options.Workers bounds the blocks in use: one for each
// open file.
var blocks = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// errChanged is a file without a checksum that was written while it was read.
var errChanged = errors.New("the file was changed while it was read")

// get reads one object: it finds the entry, opens the file, and compares the key before it reads the bytes.
func (r *root) get(ctx context.Context, g *tier.Get) error {
	path, err := r.pathOf(g.Key)
	if err != nil {
		return err
	}
	// A complete index answers a miss without a system call.
	e, tick, err := r.findEntry(path)
	if err != nil {
		return err
	}
	if err := r.slots.Acquire(ctx); err != nil {
		return err
	}
	defer r.slots.Release()
	f, e, err := r.openFound(path, e, tick)
	if err != nil {
		return err
	}
	// From here on an eviction or a Put of the same key does no harm: the open file stays what it is.
	defer f.file.Close()
	if f.head.Object.Key != g.Key {
		return r.wrongKey(path)
	}
	b, err := r.read(ctx, path, f, g)
	switch {
	case errors.Is(err, tier.ErrCorrupt):
		f.refreshInfo()
		return r.missDamaged(path, f.info, err)
	case errors.Is(err, errChanged):
		return errors.Join(tier.ErrNotFound, err)
	case err != nil:
		return err
	}
	g.Object, g.Bytes = f.head.Object, b
	if !g.NoUse {
		r.countUse(e)
	}
	return nil
}

// countUse counts a use of an object for eviction, if its entry is still present.
func (r *root) countUse(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e != nil && r.x.entries[e.id] == e && e.state == present {
		r.x.policy.Hit(&e.value)
		e.lastAsked = r.o.now().UnixNano()
	}
}

// read reads the bytes of an object to g.To, g.Into or new memory, and verifies them: by the checksum in the
// head, or by size and time of the file where the layout has none.
func (r *root) read(ctx context.Context, path string, f opened, g *tier.Get) ([]byte, error) {
	size := f.head.Object.Size
	var memory []byte
	switch {
	case g.To != nil:
	case g.Into != nil:
		b, err := g.Into(f.head.Object)
		if err != nil {
			return nil, callerError{err}
		}
		if int64(len(b)) != size {
			return nil, fmt.Errorf("Get.Into returned %d bytes for an object of %d: %w", len(b), size, fs.ErrInvalid)
		}
		memory = b
	default:
		memory = make([]byte, size)
	}
	to := g.To
	var block []byte
	if to != nil {
		b := blocks.Get().(*[blockBytes]byte)
		defer blocks.Put(b)
		block = b[:]
	}
	// The bytes are summed block by block, while each is still in the cache of the processor.
	var sum uint32
	for at := int64(0); at < size; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(size-at, blockBytes)
		b := block[:min(n, int64(len(block)))]
		if to == nil {
			b = memory[at : at+n]
		}
		if err := r.folder.readAt(f.file, path, b, f.head.Length+at); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: the file was truncated while it was read", tier.ErrCorrupt)
			}
			return nil, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		if to != nil {
			if n, err := to.Write(b); err != nil {
				return nil, callerError{err}
			} else if n != len(b) {
				return nil, callerError{io.ErrShortWrite}
			}
		}
		at += n
	}
	if f.head.HasSum {
		if sum != f.head.Sum {
			return nil, fmt.Errorf("%w: the checksum of the bytes is %08x, and the head has %08x", tier.ErrCorrupt,
				sum, f.head.Sum)
		}
		return memory, nil
	}
	// Without a checksum, a writer that overwrites the file in place shows only in size and time.
	now, err := f.file.Stat()
	if err != nil {
		return nil, err
	}
	if now.Size() != f.info.Size() || !now.ModTime().Equal(f.info.ModTime()) {
		return nil, errChanged
	}
	return memory, nil
}

// callerError is an error of the caller's own reader, writer or function. explainFor returns it unchanged.
type callerError struct{ error }

// missDamaged removes a damaged file, if the file at the path is still the one of info, and returns a miss.
// Its entry is removing meanwhile, so that no Put writes to the path.
func (r *root) missDamaged(path string, info fs.FileInfo, cause error) error {
	r.mu.Lock()
	e := r.x.entries[idOf(path)]
	switch {
	case e == nil:
		e = r.x.startRemovalOf(path) // found by a search or a lookup before it had an entry
	case e.state == present:
		r.x.startRemoval(e)
	default: // another call removes the file, or stores it again
		r.mu.Unlock()
		return tier.ErrNotFound
	}
	r.mu.Unlock()
	answer, miss := r.removeDamaged(path, info, cause)
	if miss && !r.o.ReadOnly {
		r.removeFolders(path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !miss {
		r.x.cancelRemoval(e)
		return answer
	}
	r.noteRemoved(e)
	r.x.endRemoval(e, damaged)
	return answer
}

// errYoung is a damaged file of a shared tree that was written less than MinAge ago: another program may be
// writing it.
var errYoung = errors.New("the file is damaged, or another program is still writing it")

// removeDamaged removes a damaged file from its path. It returns the error for the caller, and whether the
// file is a miss from now on, so that its entry is dropped. That may also hold for a file that stays: in a
// root that is only read, if it is young, or if it can't be removed.
func (r *root) removeDamaged(path string, info fs.FileInfo, cause error) (answer error, miss bool) {
	now, err := r.folder.lstat(path)
	switch {
	case err != nil && isAbsent(err):
		if err := r.folder.checkThere(); err != nil {
			return err, true
		}
		return tier.ErrNotFound, true
	case err != nil:
		return err, false
	// Size and time are compared, too: a newer, complete file may have got the inode number of the damaged
	// one.
	case !os.SameFile(now, info) || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()):
		return tier.ErrNotFound, false
	}
	if r.o.Shared && r.o.now().Sub(now.ModTime()) < r.o.MinAge {
		// Its writer may still complete it. It is not counted as damage.
		return fmt.Errorf("%w: %w: %v", tier.ErrNotFound, errYoung, cause), true
	}
	r.countDamaged(path, now.ModTime().UnixNano())
	answer = fmt.Errorf("%w: %w", tier.ErrNotFound, cause)
	if r.o.ReadOnly {
		return answer, true
	}
	if err := r.folder.quarantine(path, now.Size(), r.o); err != nil && !isAbsent(err) {
		return fmt.Errorf("%w (removing the file failed: %w)", answer, err), true
	}
	r.locked(func(*index) { delete(r.damaged, idOf(path)) })
	return answer, true
}

// countDamaged counts a damaged file once for each modification time: a file that stays at its path is found
// again and again.
func (r *root) countDamaged(path string, modified int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := idOf(path)
	if counted, ok := r.damaged[at]; ok && counted == modified {
		return
	}
	r.damaged[at] = modified
	r.counted.corrupt.Add(1)
}
