package folder

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/internal/slots"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// opened is the file of an object, as it was found.
type opened struct {
	head  disk.Head
	fresh tree.Fresh
	front []byte // the beginning of the object's bytes, in the block of the op
}

// pathOf returns the path of a key. It fails with ErrNotFound for a key of another space.
func (l *Level) pathOf(k tier.Key) (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	if l.o.Space != "" && k.Space != l.o.Space {
		return "", fmt.Errorf("%w: this root is for the space %q", tier.ErrNotFound, l.o.Space)
	}
	p, err := l.o.Layout.Path(k)
	if err == nil && (!fs.ValidPath(p) || p == "." || isOwn(p)) {
		err = fmt.Errorf("folder: the layout %s has for %v the path %q, which is outside the root or in %s: %w",
			l.o.Layout.Name(), k, p, tree.OwnDir, fs.ErrInvalid)
	}
	return p, err
}

func isOwn(p string) bool { return p == tree.OwnDir || strings.HasPrefix(p, tree.OwnDir+"/") }

// front is a file whose beginning was read already.
type front struct {
	read []byte
	file *os.File
}

func (f front) ReadAt(b []byte, at int64) (int, error) {
	if at >= 0 && at+int64(len(b)) <= int64(len(f.read)) {
		return copy(b, f.read[at:]), nil
	}
	return f.file.ReadAt(b, at)
}

// headBytes are read of a file whose head alone is wanted. Most heads are shorter.
const headBytes = 4 << 10

// open opens the file of an object, and reads up to n bytes of it, with the head. It fails with ErrNotFound, also for a
// foreign file; with ErrCorrupt, and then returns what missDamaged compares; or with an error of the system.
func (o *op) open(path string, n int64) (opened, error) {
	var found opened // is the call's, if that is abandoned
	err := o.do(n, func() error {
		file, info, err := o.t.OpenFile(path)
		switch {
		case err != nil && isAbsent(err):
			return tier.ErrNotFound
		case err != nil:
			return err
		}
		o.file = file
		found.fresh = freshOf(info)
		read := o.b[:min(n, info.Size())]
		if _, err := file.ReadAt(read, 0); err != nil {
			if errors.Is(err, io.EOF) { // its size was an old one, or it was cut short
				err = fmt.Errorf("%w: the file ends early", tier.ErrCorrupt)
			}
			return err
		}
		found.head, err = o.l.o.Layout.ParseHead(path, front{read, file}, info.Size())
		if err == nil {
			err = o.l.accept(&found.head, path, info.Size())
		}
		if err == nil && !found.head.HasSum && tree.Sparse(info) {
			err = fmt.Errorf("%w: it has %d bytes, and nearly all are holes", tree.ErrForeign, info.Size())
		}
		switch {
		case err == nil:
			found.front = read[min(found.head.Length, int64(len(read))):]
			return nil
		case errors.Is(err, tier.ErrCorrupt), isStale(err):
			return err
		case errors.Is(err, fs.ErrInvalid), errors.Is(err, tree.ErrForeign):
			return fmt.Errorf("%w: %w: %v", tier.ErrNotFound, tree.ErrForeign, err) // not %w: an fs.ErrInvalid would blame the key
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("%w: the file ends early", tier.ErrCorrupt)
		}
		return err
	})
	if o.abandoned != nil {
		return opened{}, err
	}
	return found, err
}

// accept verifies what a layout parsed from a head: that the sizes add up, and that the object belongs to this root and
// to this path. It sets the space if the layout has none.
func (l *Level) accept(h *disk.Head, path string, size int64) error {
	if h.Object.Space == "" {
		h.Object.Space = l.o.Space
	}
	o := &h.Object
	if o.Size > maxObject || h.Length < 0 || o.Size < 0 || h.Length+o.Size != size {
		return fmt.Errorf("%w: a head of %d bytes and %d bytes do not make a file of %d", tier.ErrCorrupt, h.Length, o.Size, size)
	}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("%w: %w", tier.ErrCorrupt, err)
	}
	if own, err := l.o.Layout.Path(o.Key); err != nil || own != path || l.o.Space != "" && o.Space != l.o.Space {
		return fmt.Errorf("%w: the object is %v", tree.ErrForeign, o.Key)
	}
	return nil
}

// again opens a file anew whose handle the server no longer knows (ESTALE): another host has put the same object anew, or
// removed it. It happens once in a call: what is stale again is an error.
func (o *op) again(path string, n int64, tried *bool) (found opened, err error) {
	if *tried {
		return opened{}, fmt.Errorf("%w: %w", tier.ErrUnavailable, errStaleAgain)
	}
	*tried = true
	o.closeFile()
	if err := o.l.refresh(o.ctx); err != nil {
		return opened{}, err
	}
	if t := o.l.currentTree(); t != nil {
		o.t = t
	}
	return o.open(path, n)
}

var errStaleAgain = errors.New("the file server does not know the file that it has just opened (ESTALE): mount the folder again if that goes on")

// closeFile closes the file in the background.
func (o *op) closeFile() {
	if file := o.file; file != nil && o.abandoned == nil {
		o.file = nil
		o.l.goFile(func() { _ = file.Close() })
	}
}

// find is open with the second try, and compares the key.
func (o *op) find(path string, k tier.Key, n int64, tried *bool) (opened, error) {
	found, err := o.open(path, n)
	if isStale(err) {
		found, err = o.again(path, n, tried)
	}
	switch {
	case errors.Is(err, tier.ErrCorrupt):
		return opened{}, o.missDamaged(path, found.fresh, err)
	case errors.Is(err, tier.ErrNotFound) && o.l.writing.has(k):
		return opened{}, tier.ErrPending
	case err == nil && found.head.Object.Key != k:
		return opened{}, fmt.Errorf("%w: the file %s has the object of another key", tier.ErrNotFound, path)
	}
	return found, err
}

// Stat implements [tier.Level]. What other processes have put or removed within the time that the mount caches folders may
// be answered as before.
func (l *Level) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	found := make([]tier.Found, len(keys))
	leave, err := l.enter()
	if err != nil {
		for i := range found {
			found[i].Err = err
		}
		return found
	}
	defer leave()
	slots.Each(len(keys), l.o.Workers, func(i int) {
		o, err := l.stat(ctx, keys[i])
		found[i] = tier.Found{Object: o, Err: l.explain("looking for", keys[i], err)}
	})
	return found
}

func (l *Level) stat(ctx context.Context, k tier.Key) (tier.Object, error) {
	path, err := l.pathOf(k)
	if err != nil {
		return tier.Object{}, err
	}
	o, err := l.begin(ctx)
	if err != nil {
		return tier.Object{}, err
	}
	defer o.end()
	var tried bool
	found, err := o.find(path, k, headBytes, &tried)
	return found.head.Object, err
}

// Get implements [tier.Level]. A file that was written or read last more than half of Options.MinAge ago is touched, so
// that no process evicts it.
func (l *Level) Get(ctx context.Context, gets []tier.Get) {
	for i := range gets { // the caller may use the slice again
		gets[i].Object, gets[i].Bytes, gets[i].Err = tier.Object{}, nil, nil
	}
	leave, err := l.enter()
	if err != nil {
		for i := range gets {
			gets[i].Err = err
		}
		return
	}
	defer leave()
	slots.Each(len(gets), l.o.Workers, func(i int) {
		gets[i].Err = l.explain("reading", gets[i].Key, l.get(ctx, &gets[i]))
	})
}

func (l *Level) get(ctx context.Context, g *tier.Get) error {
	path, err := l.pathOf(g.Key)
	if err != nil {
		return err
	}
	o, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer o.end()
	var tried bool
	found, err := o.find(path, g.Key, blockBytes, &tried)
	if err != nil {
		return err
	}
	b, err := o.read(path, found, g, &tried)
	if errors.Is(err, tier.ErrCorrupt) {
		return o.missDamaged(path, found.fresh, err)
	}
	if err != nil {
		return err
	}
	g.Object, g.Bytes = found.head.Object, b
	o.used = !g.NoUse && l.clock.age(found.fresh.Modified) > l.o.MinAge/2
	return nil
}

// read reads the bytes of an object to g.To, g.Into or new memory, and verifies them by the checksum in the head, if the
// layout has one.
func (o *op) read(path string, found opened, g *tier.Get, tried *bool) ([]byte, error) {
	head := found.head
	size := head.Object.Size
	var memory []byte
	switch {
	case g.To != nil:
	case g.Into != nil:
		b, err := g.Into(head.Object)
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
	var sum uint32
	block := found.front
	for at := int64(0); at < size; {
		if err := o.ctx.Err(); err != nil {
			return nil, err
		}
		if len(block) == 0 {
			block = o.b[:min(size-at, blockBytes)]
			err := o.readBlock(block, head.Length+at)
			if isStale(err) {
				var same opened
				if same, err = o.again(path, headBytes, tried); err == nil && !sameHead(same.head, head) {
					err = fmt.Errorf("%w: another file took the place of the one that was read", tier.ErrNotFound)
				}
				if err == nil {
					block = o.b[:min(size-at, blockBytes)]
					err = o.readBlock(block, head.Length+at)
				}
			}
			if err != nil {
				return nil, err
			}
		}
		block = block[:min(int64(len(block)), size-at)]
		sum = crc32.Update(sum, castagnoli, block)
		if g.To == nil {
			copy(memory[at:], block)
		} else if n, err := g.To.Write(block); err != nil {
			return nil, callerError{err}
		} else if n != len(block) {
			return nil, callerError{io.ErrShortWrite}
		}
		at += int64(len(block))
		block = nil
	}
	if head.HasSum && sum != head.Sum {
		return nil, fmt.Errorf("%w: the checksum of the bytes is %08x, and the head has %08x", tier.ErrCorrupt, sum, head.Sum)
	}
	return memory, nil
}

func (o *op) readBlock(b []byte, at int64) error {
	return o.do(int64(len(b)), func() error {
		n, err := o.file.ReadAt(b, at)
		switch {
		case n == len(b):
			return nil // an error that came with all bytes does not matter
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: the file was cut short while it was read", tier.ErrCorrupt)
		}
		return err
	})
}

// sameHead reports whether two files are of the same object, byte for byte.
func sameHead(a, b disk.Head) bool {
	return a.Object.Key == b.Object.Key && a.Object.Size == b.Object.Size && a.Length == b.Length && a.HasSum == b.HasSum && a.Sum == b.Sum
}

// missDamaged removes a damaged file, if the file at the path is still that one, and returns a miss. In a layout without
// checksums a file may be one that another program is still writing, as long as it is young.
func (o *op) missDamaged(path string, damaged tree.Fresh, cause error) error {
	l := o.l
	answer := fmt.Errorf("%w: %w", tier.ErrNotFound, cause)
	if !disk.HasSums(l.o.Layout) && l.clock.age(damaged.Modified) < l.o.MinAge {
		return fmt.Errorf("%w: another program may still be writing it: %v", tier.ErrNotFound, cause)
	}
	o.closeFile()
	aside := l.tempName()
	var removed bool
	err := o.do(0, func() error {
		// The rename takes the file from its path in one step, whichever it is by now. Another one is put back.
		if err := o.t.Root.Rename(path, aside); err != nil {
			return err
		}
		now, err := o.t.Stat(aside)
		if err == nil && (now.Inode != damaged.Inode || now.Size != damaged.Size) {
			return ignoreExist(link(o.t, aside, path))
		}
		removed = err == nil
		return errors.Join(err, o.t.Root.Remove(aside))
	})
	if o.abandoned == nil && removed {
		l.corrupt.Add(1)
	}
	if err != nil && !isAbsent(err) {
		return fmt.Errorf("%w (removing the file failed: %w)", answer, err)
	}
	return answer
}

// ignoreExist is for a file that is not put back, since there is a newer one.
func ignoreExist(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
