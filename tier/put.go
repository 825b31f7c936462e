package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
)

// storing is one element of Put.
type storing struct {
	put      *Put
	placed   Placed // its reservation
	bytes    []byte // the object's, as soon as they are known
	sum      uint32 // of bytes
	inMemory bool   // bytes are those in memory
	pending  *pendingWrite
	direct   levelSet // that are written to before Put returns
	stored   int      // levels that have the object
	changed  bool     // a level found that its bytes in memory were changed
	err      error
}

// Put stores objects, in the order of the batch, so that a parent precedes its children: in memory, and in
// the lower levels as their policies say. What has no room in memory is written to the levels of Back, too,
// before Put returns. What memory has already is written to the levels that lack it.
//
// Err is nil if a level has the object: memory, or a lower one. A level of Through that is away gets an
// object of memory when it is back, if the backlog has room for it, and one that refuses it is counted. Otherwise Err is what memory, or the last
// level, answered.
func (s *Store) Put(ctx context.Context, puts []Put) {
	if !s.life.enter() {
		failPuts(puts, errClosedStore())
		return
	}
	defer s.life.leave()
	for len(puts) > 0 {
		n, size := 0, int64(0)
		for n < len(puts) && n < maxBatch && (n == 0 || size+puts[n].Object.Size <= batchBytes) {
			size += max(puts[n].Object.Size, 0)
			n++
		}
		s.putSome(ctx, puts[:n])
		puts = puts[n:]
	}
}

// putSome is Put for objects whose bytes are in hand together. Of several of one key, the first is stored.
func (s *Store) putSome(ctx context.Context, puts []Put) {
	all := make([]*storing, 0, len(puts))
	first, twice := map[Key]*Put{}, []*Put(nil)
	for i := range puts {
		p := &puts[i]
		p.Err = p.Object.Validate()
		if p.Err == nil && p.From == nil && int64(len(p.Bytes)) != p.Object.Size {
			p.Err = fmt.Errorf("tier: object %v has %d bytes, not %d: %w",
				p.Object.Key, len(p.Bytes), p.Object.Size, fs.ErrInvalid)
		}
		if p.Err == nil {
			p.Err = ctx.Err()
		}
		switch {
		case p.Err != nil:
		case first[p.Object.Key] != nil:
			twice = append(twice, p)
		default:
			first[p.Object.Key] = p
			all = append(all, &storing{put: p})
		}
	}
	defer func() {
		for _, p := range twice {
			p.Err = first[p.Object.Key].Err
		}
	}()
	s.putMemory(all)
	for _, l := range s.lower {
		s.putLower(ctx, l, all)
	}
	s.writes.finishPut(all)
	for _, p := range all {
		s.fetcher.negative.stored(p.put.Object.Key)
		if p.stored == 0 {
			p.put.Err = p.err
		}
	}
}

// putMemory reserves room under the lease of pending writes, fills and commits it, so that the object is
// pinned for the lower levels from the beginning.
func (s *Store) putMemory(all []*storing) {
	if len(all) == 0 {
		return
	}
	objects := make([]Object, len(all))
	for i, p := range all {
		objects[i] = p.put.Object
	}
	lease := s.writes.lease
	var filled []*storing
	var abort []Key
	placed := lease.Reserve(objects)
	for i, p := range all {
		p.err = placed[i].Err
		switch {
		case p.err == nil:
			if p.err = guard(objects[i].Key, func() error { return p.fill(placed[i].Bytes) }); p.err != nil {
				abort = append(abort, objects[i].Key)
				continue
			}
			p.placed, p.bytes = placed[i], placed[i].Bytes
			filled = append(filled, p)
		case errors.Is(p.err, ErrExists):
			p.stored, p.direct = 1, s.levelsWith(Through)
			p.direct |= s.writes.addStoredAgain(objects[i].Key, s.levelsWith(Back))
			if p.direct != 0 {
				p.read()
			}
		default:
			p.direct = s.levelsWith(Through, Back)
			if p.direct != 0 {
				p.read()
			}
		}
	}
	lease.Abort(abort)
	s.writes.commitPut(filled)
}

// commitPut commits what Put has filled, and makes pending writes of it. For levels of Back that have no room
// for it, the caller writes it.
func (w *writeBack) commitPut(filled []*storing) {
	keys := make([]Key, len(filled))
	for i, p := range filled {
		keys[i] = p.put.Object.Key
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, err := range w.lease.Commit(keys) {
		p := filled[i]
		if p.err = err; err != nil {
			continue
		}
		p.inMemory, p.stored, p.direct = true, 1, w.levelsWith(Through)
		p.pending = w.attach(p.placed)
		p.pending.users++
		p.pending.summed, p.pending.sum = true, p.sum
		if back := w.levelsWith(Back); w.pinAndEnqueue(p.put.Object, back) != nil {
			p.direct |= back
		}
	}
}

// finishPut ends the use of the bytes in memory.
func (w *writeBack) finishPut(all []*storing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range all {
		if p.pending != nil {
			p.pending.users--
			w.review(p.pending)
		}
		if p.changed {
			w.discard(p.put.Object.Key)
		}
	}
}

// fill copies the object to its place in memory.
func (p *storing) fill(place []byte) error {
	if p.put.From == nil {
		copy(place, p.put.Bytes)
		p.sum = crc32.Checksum(p.put.Bytes, castagnoli)
		return nil
	}
	var sum summing
	if _, err := io.ReadFull(io.TeeReader(p.put.From, &sum), place); err != nil {
		return short(p.put.Object, err)
	}
	p.sum = sum.sum
	return p.atEnd()
}

// atEnd checks that From has no more bytes.
func (p *storing) atEnd() error {
	var more [1]byte
	switch n, err := io.ReadFull(p.put.From, more[:]); {
	case n > 0:
		return fmt.Errorf("tier: object %v has more than %d bytes: %w",
			p.put.Object.Key, p.put.Object.Size, fs.ErrInvalid)
	case err != io.EOF:
		return err
	}
	return nil
}

// short is the error of a stream that ended early, or failed.
func short(o Object, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("tier: reading object %v of %d bytes: %w", o.Key, o.Size, err)
}

// read has the bytes of the object on the heap, for levels that are written to without memory. The heap grows
// with what arrives, not with what was announced.
func (p *storing) read() {
	if p.put.From == nil {
		p.bytes = p.put.Bytes
		return
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, p.put.From, p.put.Object.Size)
	if err != nil {
		err = short(p.put.Object, err)
	} else {
		err = p.atEnd()
	}
	if err != nil {
		p.err, p.direct, p.stored = err, 0, 0
		return
	}
	p.bytes = b.Bytes()
	if p.bytes == nil {
		p.bytes = []byte{}
	}
}

// lower returns what a lower level gets. Bytes in memory are shared with other processes, so what they were
// is checked.
func (p *storing) lower() Put {
	switch {
	case p.put.From == nil:
		return Put{Object: p.put.Object, Bytes: p.put.Bytes}
	case p.inMemory:
		return Put{Object: p.put.Object, From: &summed{key: p.put.Object.Key, rest: p.bytes, want: p.sum}}
	}
	return Put{Object: p.put.Object, Bytes: p.bytes}
}

// putLower writes to a level while the caller waits.
func (s *Store) putLower(ctx context.Context, l *lower, all []*storing) {
	var some []*storing
	var puts []Put
	for _, p := range all {
		if p.direct.has(l) {
			some = append(some, p)
			puts = append(puts, p.lower())
		}
	}
	if len(some) == 0 {
		return
	}
	select {
	case l.slots <- struct{}{}:
		l.put(ctx, puts)
		<-l.slots
	case <-ctx.Done():
		failPuts(puts, ctx.Err())
	}
	for i, p := range some {
		switch err := puts[i].Err; {
		case err == nil:
			p.stored++
			l.written(p.put.Object, nil)
		case p.inMemory && (isTemporary(err) || ctx.Err() != nil):
			s.writes.add(l.bit(), p.put.Object)
		default:
			if errors.Is(err, errChanged) && !p.changed {
				p.changed = true
				p.stored--
			}
			l.written(p.put.Object, err)
			if p.err == nil || errors.Is(p.err, ErrPending) || !errors.Is(err, ErrUnavailable) {
				p.err = err
			}
		}
	}
}
