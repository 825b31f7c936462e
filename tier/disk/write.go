package disk

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// write stores e under a temporary name, and then under its own. A full file system makes room as a full level
// does, once: what is in hand is written anew, and of a stream, whose bytes come only once, the step that failed is
// done again. What only sync or close reports is too late for a stream.
func (c *putCall) write(e *entry, p *tier.Put, parent *entry) error {
	roomMade := false
	again := func(do func() error) error {
		err := do()
		if roomMade || !errors.Is(c.r.explain("", err), tier.ErrFull) {
			return err
		}
		roomMade = true
		if err := c.makeRoom(e, err); err != nil {
			return err
		}
		return do()
	}
	if p.From != nil {
		return c.writeOnce(e, p, parent, again)
	}
	return again(func() error { return c.writeOnce(e, p, parent, func(do func() error) error { return do() }) })
}

// makeRoom evicts as much as e takes. If nothing may go, it returns why there is no room.
func (c *putCall) makeRoom(e *entry, full error) error {
	r := c.r
	r.mu.Lock()
	victims := r.x.choose(e.bytes, 0, r.o.now(), r.o.MinAge)
	r.mu.Unlock()
	if len(victims) == 0 {
		return full
	}
	return r.evict(victims)
}

// writeOnce stores e, or leaves nothing. step does a step that can be done again.
func (c *putCall) writeOnce(e *entry, p *tier.Put, parent *entry, step func(do func() error) error) (err error) {
	r := c.r
	var file *os.File
	var temp string
	if err := step(func() (err error) { file, temp, err = r.folder.create(); return err }); err != nil {
		return err
	}
	failpoint.Hit("disk.temp.created")
	closed, renamed := false, false
	defer func() {
		if !closed {
			err = errors.Join(err, file.Close())
		}
		if !renamed {
			_ = r.folder.root.Remove(temp) // else the next open does
		}
	}()
	if err := c.fill(file, temp, p, step); err != nil {
		return err
	}
	failpoint.Hit("disk.temp.written")
	if r.o.Sync >= SyncFile {
		if err := r.folder.sync(file, temp); err != nil {
			return err
		}
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != e.size {
		return fmt.Errorf("the layout %s has made a head of another length: %w", r.o.Layout.Name(), fs.ErrInvalid)
	}
	closed = true
	if err := file.Close(); err != nil { // some file systems report a lack of room here
		return err
	}
	if parent != nil {
		select {
		case <-parent.done:
		case <-c.ctx.Done():
		}
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	e.wrote(info)
	if err := r.folder.alive(); err != nil {
		return err
	}
	if err := step(func() error { return r.folder.rename(temp, e.path()) }); err != nil {
		return err
	}
	renamed = true
	failpoint.Hit("disk.renamed")
	if r.o.Sync >= SyncFolder {
		if err := r.folder.syncFolder(e.path()); err != nil {
			return errors.Join(err, r.folder.remove(e.path()))
		}
	}
	return nil
}

// smallBytes is the most of an object that is copied behind its head, to be written in one call.
const smallBytes = 128 << 10

// fill writes head and bytes of an object.
func (c *putCall) fill(file *os.File, temp string, p *tier.Put, step func(do func() error) error) error {
	r := c.r
	var room [1024]byte
	head, err := r.o.Layout.AppendHead(room[:0], p.Object, 0)
	if err != nil {
		return err
	}
	b := blocks.Get().(*[blockBytes]byte)
	defer blocks.Put(b)
	if p.From == nil && p.Object.Size <= smallBytes && len(head)+smallBytes <= blockBytes {
		head, err := r.o.Layout.AppendHead(b[:0], p.Object, crc32.Checksum(p.Bytes, castagnoli))
		if err != nil {
			return err
		}
		return r.folder.write(file, temp, append(head, p.Bytes...), 0)
	}
	length := len(head)
	var sum uint32
	// Blocks end at multiples of their size in the file, so that no page is written twice but the first.
	for at := int64(0); at < p.Object.Size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		offset := int64(length) + at
		n := min(p.Object.Size-at, blockBytes-offset%blockBytes)
		block := b[:n]
		if p.From == nil {
			block = p.Bytes[at : at+n]
		} else if _, err := io.ReadFull(p.From, block); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return asIs{err}
		}
		sum = crc32.Update(sum, castagnoli, block)
		if err := step(func() error { return r.folder.write(file, temp, block, offset) }); err != nil {
			return err
		}
		at += n
		failpoint.Hit("disk.temp.block")
	}
	if p.From != nil {
		if err := atEnd(p.From, p.Object.Size); err != nil {
			return err
		}
	}
	head, err = r.o.Layout.AppendHead(room[:0], p.Object, sum)
	if err != nil {
		return err
	}
	return step(func() error { return r.folder.write(file, temp, head, 0) })
}

// atEnd reports, as an fs.ErrInvalid, that a stream goes on.
func atEnd(from io.Reader, size int64) error {
	var one [1]byte
	for range 100 {
		n, err := from.Read(one[:])
		switch {
		case n > 0:
			return fmt.Errorf("Put.From has more than the %d bytes of the object: %w", size, fs.ErrInvalid)
		case err == io.EOF: //nolint:errorlint // a Reader returns it as it is
			return nil
		case err != nil:
			return asIs{err}
		}
	}
	return asIs{io.ErrNoProgress}
}
