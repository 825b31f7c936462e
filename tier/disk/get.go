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

// blockBytes are read or written, and summed, at a time: they stay in the processor's cache in between.
const blockBytes = 256 << 10

// blocks are the memory for objects that are streamed: at most one block for each open file.
var blocks = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// errChanged is a file without a checksum that was written while it was read.
var errChanged = errors.New("the file was changed while it was read")

func (r *root) get(ctx context.Context, g *tier.Get) error {
	path, err := r.pathOf(g.Key)
	if err != nil {
		return err
	}
	e, tick, err := r.find(path)
	if err != nil {
		return err
	}
	if err := r.slots.take(ctx); err != nil {
		return err
	}
	defer r.slots.free()
	f, e, err := r.openFound(path, e, tick)
	if err != nil {
		return err
	}
	defer f.file.Close()
	if f.head.Object.Key != g.Key {
		return r.anothers(path)
	}
	b, err := r.read(ctx, path, f, g)
	switch {
	case errors.Is(err, tier.ErrCorrupt):
		f.lookAgain()
		return r.damage(path, f.info, err)
	case errors.Is(err, errChanged):
		return errors.Join(tier.ErrNotFound, err)
	case err != nil:
		return err
	}
	g.Object, g.Bytes = f.head.Object, b
	r.used(e)
	return nil
}

// used counts a use of an object, unless it is gone by now.
func (r *root) used(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e != nil && r.x.entries[e.id] == e && e.state == present {
		r.x.policy.Hit(&e.value)
		e.looked = r.o.now().UnixNano()
	}
}

// read reads the bytes of an object to where the caller wants them, and verifies them.
func (r *root) read(ctx context.Context, path string, f opened, g *tier.Get) ([]byte, error) {
	size := f.head.Object.Size
	var memory []byte
	switch {
	case g.To != nil:
	case g.Into != nil:
		b, err := g.Into(f.head.Object)
		if err != nil {
			return nil, asIs{err}
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
				err = fmt.Errorf("%w: the file was cut while it was read", tier.ErrCorrupt)
			}
			return nil, err
		}
		sum = crc32.Update(sum, castagnoli, b)
		if to != nil {
			if n, err := to.Write(b); err != nil {
				return nil, asIs{err}
			} else if n != len(b) {
				return nil, asIs{io.ErrShortWrite}
			}
		}
		at += n
	}
	if f.head.HasSum {
		if sum != f.head.Sum {
			return nil, fmt.Errorf("%w: the checksum of its bytes is %08x, and has to be %08x", tier.ErrCorrupt, sum, f.head.Sum)
		}
		return memory, nil
	}
	now, err := f.file.Stat()
	if err != nil {
		return nil, err
	}
	if now.Size() != f.info.Size() || !now.ModTime().Equal(f.info.ModTime()) {
		return nil, errChanged
	}
	return memory, nil
}

// asIs is an error of the caller's, which is handed back without a word.
type asIs struct{ error }

// damage takes a damaged file away, if it is still in its place, and returns a miss.
func (r *root) damage(path string, info fs.FileInfo, cause error) error {
	r.mu.Lock()
	e := r.x.entries[idOf(path)]
	switch {
	case e == nil:
		e = r.x.hide(path)
	case e.state == present:
		r.x.claim(e)
	default: // somebody takes it away, or has stored it anew
		r.mu.Unlock()
		return tier.ErrNotFound
	}
	r.mu.Unlock()
	answer, gone := r.takeDamaged(path, info, cause)
	if gone && !r.o.ReadOnly {
		r.removeFolders(path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !gone {
		r.x.unclaim(e)
		return answer
	}
	r.remember(e)
	r.x.drop(e, damaged)
	return answer
}

// errYoung is a file of a shared tree that is not complete, and was written a short time ago.
var errYoung = errors.New("the file is damaged, or somebody is writing it")

// takeDamaged returns the answer, and whether the index must forget the file.
func (r *root) takeDamaged(path string, info fs.FileInfo, cause error) (answer error, gone bool) {
	now, err := r.folder.lstat(path)
	switch {
	case err != nil && isAbsent(err):
		if away := r.folder.alive(); away != nil {
			return away, true
		}
		return tier.ErrNotFound, true
	case err != nil:
		return err, false
	// The number of a file that is gone may be that of a newer, right one.
	case !os.SameFile(now, info) || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()):
		return tier.ErrNotFound, false
	}
	if r.o.Shared && r.o.now().Sub(now.ModTime()) < r.o.MinAge {
		return fmt.Errorf("%w: %w: %v", tier.ErrNotFound, errYoung, cause), true
	}
	r.countDamaged(path, now.ModTime().UnixNano())
	answer = fmt.Errorf("%w: %w", tier.ErrNotFound, cause)
	if r.o.ReadOnly {
		return answer, true
	}
	if err := r.folder.putAside(path, now.Size(), r.o); err != nil && !isAbsent(err) {
		return fmt.Errorf("%w (taking the file away failed: %w)", answer, err), true
	}
	r.locked(func(*index) { delete(r.damaged, idOf(path)) })
	return answer, true
}

// countDamaged counts a damaged file once, however often it is found: it may have to stay where it is.
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
