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
	before := r.x.leavingBytes()
	enough := func() bool { return r.x.leavingBytes()-before >= e.bytes }
	victims := r.x.chooseVictims(&r.x.leaves, enough, r.o.now(), r.o.MinAge)
	r.mu.Unlock()
	if len(victims) == 0 {
		return full
	}
	return r.evict(victims)
}

// writeOnce writes a temporary file, syncs it if wanted, and renames it to the path of e, in this order: a
// file under its final name is always complete. After an error neither file is left. step does a step that can be
// done again.
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
			_ = r.folder.tree.Root.Remove(temp) // if that fails, the next Open removes it
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
		return fmt.Errorf("the layout %s has made a head of another length than before: %w", r.o.Layout.Name(),
			fs.ErrInvalid)
	}
	closed = true
	if err := file.Close(); err != nil { // NFS, for example, reports a lack of room here
		return err
	}
	if parent != nil { // of the same batch: its rename comes first
		select {
		case <-parent.done:
		case <-c.ctx.Done():
		}
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	e.setFile(info) // before the rename: from then on a search may compare the file with e
	// If the folder was replaced, the rename would put the object where no path leads.
	if err := r.folder.checkThere(); err != nil {
		return err
	}
	if err := step(func() error { return r.folder.rename(temp, e.path()) }); err != nil {
		return err
	}
	renamed = true
	failpoint.Hit("disk.renamed")
	if r.o.Sync >= SyncFolder {
		if err := r.folder.syncFolder(e.path()); err != nil {
			return errors.Join(err, r.folder.remove(e.path())) // Put reports an error, so the object must not be there
		}
	}
	return nil
}

// smallBytes is the largest object whose bytes are copied behind the head, so that one call writes both.
const smallBytes = 128 << 10

// fill writes an object to its temporary file. The head of a larger one is written last, since it has the
// checksum of the bytes, which are summed while they are written.
func (c *putCall) fill(file *os.File, temp string, p *tier.Put, step func(do func() error) error) error {
	r := c.r
	var room [1024]byte
	head, err := r.o.Layout.AppendHead(room[:0], p.Object, 0)
	if err != nil {
		return err
	}
	b := blocks.Get().(*[blockBytes]byte)
	defer blocks.Put(b)
	// The bytes of a small object are there, so the checksum is known before the first write.
	if p.From == nil && p.Object.Size <= smallBytes && len(head)+smallBytes <= blockBytes {
		head, err := r.o.Layout.AppendHead(b[:0], p.Object, crc32.Checksum(p.Bytes, castagnoli))
		if err != nil {
			return err
		}
		return r.folder.write(file, temp, append(head, p.Bytes...), 0)
	}
	length := len(head)
	var sum uint32
	// Blocks end at multiples of blockBytes in the file, so that only the page with the head is written
	// twice.
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
			return callerError{err}
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

// atEnd returns an fs.ErrInvalid if a stream has more bytes than the object.
func atEnd(from io.Reader, size int64) error {
	var one [1]byte
	// A reader may return 0 bytes without an error, though not for ever.
	for range 100 {
		n, err := from.Read(one[:])
		switch {
		case n > 0:
			return fmt.Errorf("Put.From has more than the %d bytes of the object: %w", size, fs.ErrInvalid)
		case err == io.EOF: //nolint:errorlint // a Reader returns it as it is
			return nil
		case err != nil:
			return callerError{err}
		}
	}
	return callerError{io.ErrNoProgress}
}
