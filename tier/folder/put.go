package folder

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/internal/slots"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// putCall is one call of Put. Objects are written to temporary files side by side, and then renamed in the order of the
// batch, so that no kill leaves a child without its parent. A stream (From) is read after all objects before it are
// stored: several streams may be parts of one reader.
type putCall struct {
	l       *Level
	ctx     context.Context
	claimed []tier.Key
}

// written is an object in a temporary file, which is renamed to its path.
type written struct{ temp, path string }

// Put implements [tier.Level]. What is there already is not written again, and stays as if it had been put now. Two
// processes may write an object at the same time: then one file takes the place of the other one.
//
// When a time limit ends a Put, the object may still be stored, whole.
func (l *Level) Put(ctx context.Context, puts []tier.Put) {
	leave, err := l.enter()
	if err != nil {
		for i := range puts {
			puts[i].Err = err
		}
		return
	}
	defer leave()
	c := &putCall{l: l, ctx: ctx}
	defer l.writing.release(c)
	for len(puts) > 0 {
		n := 1
		for puts[0].From == nil && n < len(puts) && puts[n].From == nil && n < batch && !has(puts[:n], puts[n].Object.Key) {
			n++
		}
		c.put(puts[:n])
		puts = puts[n:]
	}
}

// has reports whether a batch has an object. Of the same object twice the first one is stored.
func has(puts []tier.Put, k tier.Key) bool {
	return slices.ContainsFunc(puts, func(p tier.Put) bool { return p.Object.Key == k })
}

// batch is the most objects that are in temporary files before they are renamed.
const batch = 64

func (c *putCall) put(puts []tier.Put) {
	files := make([]*written, len(puts))
	slots.Each(len(puts), c.l.o.Workers, func(i int) {
		files[i], puts[i].Err = c.write(&puts[i])
	})
	for i := range puts {
		if files[i] != nil {
			puts[i].Err = c.publish(*files[i])
		}
		err := c.l.explain("storing", puts[i].Object.Key, puts[i].Err)
		if errors.Is(err, tier.ErrFull) {
			c.l.evictor.full()
		}
		puts[i].Err = err
	}
}

// check verifies what the caller gave, and returns the path of the object.
func (c *putCall) check(p *tier.Put) (path string, err error) {
	l, o := c.l, p.Object
	if err := o.Validate(); err != nil {
		return "", err
	}
	if p.From == nil && int64(len(p.Bytes)) != o.Size {
		return "", fmt.Errorf("object %v has the size %d, and Put.Bytes has %d bytes: %w", o.Key, o.Size, len(p.Bytes), fs.ErrInvalid)
	}
	if o.Size > maxObject {
		return "", fmt.Errorf("%w: the most is %d bytes", tier.ErrTooLarge, int64(maxObject))
	}
	if l.o.Capacity > 0 && o.Size > l.o.Capacity {
		return "", fmt.Errorf("%w: it has %d bytes, and Options.Capacity is %d: raise it", tier.ErrTooLarge, o.Size, l.o.Capacity)
	}
	path, err = l.pathOf(o.Key)
	if errors.Is(err, tier.ErrNotFound) {
		err = fmt.Errorf("%w: this root is for the space %q", fs.ErrInvalid, l.o.Space)
	}
	return path, err
}

// write writes an object to a temporary file, unless it is there already: then it returns nil.
func (c *putCall) write(p *tier.Put) (*written, error) {
	path, err := c.check(p)
	if err != nil {
		return nil, err
	}
	// Before the look: if another call has claimed the object and it is not there, that call is still writing.
	claimed := c.l.writing.add(p.Object.Key, c)
	o, err := c.l.begin(c.ctx)
	if err != nil {
		return nil, err
	}
	defer o.end()
	there, err := o.renew(path, p.Object.Key)
	switch {
	case err != nil || there:
		return nil, err
	case !claimed:
		return nil, tier.ErrPending
	}
	o.closeFile()
	if err := o.fill(p); err != nil {
		return nil, err
	}
	w := &written{o.temp, path}
	o.temp = "" // publish removes it from here on
	return w, nil
}

// renew reports whether an object is there, and stays for MinAge. An evictor may be about to take it: so the file is
// touched, and looked for again. What an evictor has moved away by then is written anew; what it moves away later it finds
// touched, and puts it back.
func (o *op) renew(path string, k tier.Key) (there bool, err error) {
	var tried bool
	found, err := o.open(path, headBytes)
	if isStale(err) {
		found, err = o.again(path, headBytes, &tried)
	}
	switch {
	case errors.Is(err, tier.ErrNotFound), errors.Is(err, tier.ErrCorrupt):
		return false, nil // the rename takes its place
	case errors.Is(err, fs.ErrPermission): // a file that this user may not read is replaced
		return false, nil
	case err != nil:
		return false, err
	case found.head.Object.Key != k:
		return false, fmt.Errorf("the layout %s has the file %s for another key, too, whose object is there: delete it: %w",
			o.l.o.Layout.Name(), path, fs.ErrInvalid)
	case o.l.clock.age(found.fresh.Modified) < o.l.o.MinAge/2:
		return true, nil
	}
	file := o.file
	if err := o.do(0, func() error { return tree.Touch(file) }); err != nil {
		return false, o.abandoned
	}
	o.closeFile()
	again, err := o.open(path, headBytes)
	if o.abandoned != nil {
		return false, err
	}
	return err == nil && again.fresh.Inode == found.fresh.Inode, nil
}

// fill writes an object to a temporary file. Bytes go through the block, since a file call that hangs must not read
// memory that is the caller's again. The head of a larger object is written last, since it has the checksum.
func (o *op) fill(p *tier.Put) error {
	layout := o.l.o.Layout
	head, err := layout.AppendHead(nil, p.Object, 0)
	if err != nil {
		return err
	}
	length := int64(len(head))
	if err := o.create(); err != nil {
		return err
	}
	failpoint.Hit("folder.temp.created")
	var sum uint32
	for at := int64(0); at < p.Object.Size; {
		if err := o.ctx.Err(); err != nil {
			return err
		}
		// Blocks end at multiples of blockBytes in the file.
		offset := length + at
		n := min(p.Object.Size-at, blockBytes-offset%blockBytes)
		block := o.b[:n]
		// Of an object that fits, the head goes in front of the bytes, and both are one write.
		whole := at == 0 && length+p.Object.Size <= blockBytes
		if whole {
			block = o.b[length : length+n]
		}
		if p.From == nil {
			copy(block, p.Bytes[at:])
		} else if _, err := io.ReadFull(p.From, block); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return callerError{err}
		}
		sum = crc32.Update(sum, castagnoli, block)
		at += n
		if whole {
			break
		}
		if err := o.writeAt(block, offset); err != nil {
			return err
		}
		failpoint.Hit("folder.temp.block")
	}
	if p.From != nil {
		if err := atEnd(p.From, p.Object.Size); err != nil {
			return err
		}
	}
	if head, err = layout.AppendHead(head[:0], p.Object, sum); err != nil {
		return err
	}
	if int64(len(head)) != length {
		return fmt.Errorf("the layout %s has made a head of another length than before: %w", layout.Name(), fs.ErrInvalid)
	}
	if length+p.Object.Size <= blockBytes {
		head = append(o.b[:0], head...)[:length+p.Object.Size]
	}
	if err := o.writeAt(head, 0); err != nil {
		return err
	}
	failpoint.Hit("folder.temp.written")
	return o.finish(p.Object.Size)
}

// create makes the temporary file.
func (o *op) create() error {
	temp := o.l.tempName()
	open := func() error {
		file, err := o.t.Root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			o.file, o.temp = file, temp
		}
		return err
	}
	err := o.do(0, open)
	if o.abandoned != nil || !isStale(err) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The folder, or its mount, was replaced.
	if err := o.l.refresh(o.ctx); err != nil {
		return err
	}
	if t := o.l.currentTree(); t != nil {
		o.t = t
	}
	if err = o.do(0, open); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is gone: make it again: %w", tier.ErrUnavailable, tree.TempDir, err)
	}
	return err
}

func (o *op) writeAt(b []byte, at int64) error {
	return o.do(int64(len(b)), func() error {
		_, err := o.file.WriteAt(b, at)
		return err
	})
}

// finish syncs the temporary file if that is wanted, and closes it: file systems such as NFS write the bytes to the
// server by then, so that who opens the file afterwards reads them.
func (o *op) finish(size int64) error {
	return o.do(size, func() error {
		var err error
		if o.l.o.Sync >= disk.SyncFile {
			err = o.file.Sync()
		}
		err = errors.Join(err, o.file.Close())
		o.file = nil
		return err
	})
}

// publish renames a temporary file to its path.
func (c *putCall) publish(w written) error {
	ctx := c.ctx
	ended := ctx.Err() != nil
	if ended {
		ctx = c.l.background // to remove the file
	}
	o, err := c.l.begin(ctx)
	if err != nil {
		return errors.Join(c.ctx.Err(), err) // an evictor removes the file later
	}
	defer o.end()
	o.temp = w.temp
	if ended {
		return c.ctx.Err()
	}
	err = o.do(0, func() error {
		if err := o.t.Rename(w.temp, w.path); err != nil {
			return err
		}
		o.temp = ""
		failpoint.Hit("folder.renamed")
		if o.l.o.Sync < disk.SyncFolder {
			return nil
		}
		if err := o.t.SyncFolders(w.path, func(d *os.File, _ string) error { return d.Sync() }); err != nil {
			return errors.Join(err, o.t.Root.Remove(w.path)) // Put reports an error, so the object must not be there
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) && o.abandoned == nil {
		err = fmt.Errorf("%w: the temporary file is gone, as one that nobody wrote to for %v: %w", tier.ErrUnavailable, c.l.o.tempAge, err)
	}
	return err
}

// atEnd returns an fs.ErrInvalid if a stream has more bytes than the object.
func atEnd(from io.Reader, size int64) error {
	var one [1]byte
	// A reader may return 0 bytes without an error, though not for ever.
	for range 100 {
		n, err := from.Read(one[:])
		switch {
		case n > 0:
			return fmt.Errorf("Put.From has more than the %d bytes of the object: %w", size, fs.ErrInvalid)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return callerError{err}
		}
	}
	return callerError{io.ErrNoProgress}
}

// Delete implements [tier.Level]. An object that another process is writing at the same time may be there afterwards.
func (l *Level) Delete(ctx context.Context, keys []tier.Key) []error {
	errs := make([]error, len(keys))
	leave, err := l.enter()
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer leave()
	for i, k := range keys { // in order: a key that is there twice is gone the second time
		errs[i] = l.explain("deleting", k, l.delete(ctx, k))
	}
	return errs
}

func (l *Level) delete(ctx context.Context, k tier.Key) error {
	path, err := l.pathOf(k)
	if err != nil {
		return err
	}
	o, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer o.end()
	var tried bool
	switch _, err := o.find(path, k, headBytes, &tried); {
	case errors.Is(err, tier.ErrPending): // its file has no name yet
		return tier.ErrNotFound
	case err != nil:
		return err
	}
	o.closeFile()
	err = o.do(0, func() error { return o.t.Root.Remove(path) })
	if err != nil && o.abandoned == nil && isAbsent(err) {
		return tier.ErrNotFound
	}
	return err
}
