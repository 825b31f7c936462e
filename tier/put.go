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
	put    *Put
	bytes  []byte // the object's, as soon as they are known
	sum    uint32 // of bytes
	inMem  bool
	debt   *debt
	fallen uint32 // levels below that are to be written to before Put returns
	taken  int    // levels that have the object
	wrong  bool   // a level found that its bytes in memory were changed
	err    error
}

// Put stores objects, in the order of the batch, so that a parent precedes its children: in memory, and in the
// lower levels as their policies want. What has no room in memory is written to the levels of Back, too, before Put
// returns. What memory has already is written to the levels that lack it.
//
// Err is nil if a level has the object: memory, or a lower one. A level of Through that is away gets the
// object when it is back, and one that refuses it is counted. Otherwise Err is what memory, or the last level,
// answered.
func (s *Store) Put(ctx context.Context, puts []Put) {
	if !s.gate.enter() {
		for i := range puts {
			puts[i].Err = errClosedStore()
		}
		return
	}
	defer s.gate.leave()
	for len(puts) > 0 {
		n, size := 0, int64(0)
		for n < len(puts) && n < maxTogether && (n == 0 || size+puts[n].Object.Size <= bytesTogether) {
			size += max(puts[n].Object.Size, 0)
			n++
		}
		s.putSome(ctx, puts[:n])
		puts = puts[n:]
	}
}

func (s *Store) putSome(ctx context.Context, puts []Put) {
	all := make([]*storing, 0, len(puts))
	first, twice := map[Key]*Put{}, []*Put(nil)
	for i := range puts {
		p := &puts[i]
		p.Err = p.Object.Validate()
		if p.Err == nil && p.From == nil && int64(len(p.Bytes)) != p.Object.Size {
			p.Err = fmt.Errorf("tier: object %v has %d bytes, not %d: %w", p.Object.Key, len(p.Bytes), p.Object.Size, fs.ErrInvalid)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range all {
		if p.debt != nil {
			p.debt.users--
			s.letGo(p.debt)
		}
		if p.wrong {
			s.discard(p.put.Object.Key)
		}
		s.missing.stored(p.put.Object.Key)
		if p.taken == 0 {
			p.put.Err = p.err
		}
	}
}

// putMemory reserves room under the store's lease, fills and commits it, so that what is owed is held from
// the beginning.
func (s *Store) putMemory(all []*storing) {
	if len(all) == 0 {
		return
	}
	objects := make([]Object, len(all))
	for i, p := range all {
		objects[i] = p.put.Object
	}
	lease := s.owed.lease
	var commit, abort []Key
	placed := lease.Reserve(objects)
	for i, p := range all {
		p.err = placed[i].Err
		switch {
		case p.err == nil:
			if p.err = guard(objects[i].Key, func() error { return p.fill(placed[i].Bytes) }); p.err != nil {
				abort = append(abort, objects[i].Key)
				continue
			}
			p.bytes, p.inMem = placed[i].Bytes, true
			commit = append(commit, objects[i].Key)
		case errors.Is(p.err, ErrExists):
			p.taken, p.fallen = 1, s.writersOf(Through)
			p.fallen |= s.oweKnown(objects[i].Key, s.writersOf(Back)) // it went, or too much is owed: the caller writes it
			if p.fallen != 0 {
				p.read()
			}
		default:
			p.fallen = s.writersOf(Through, Back)
			if p.fallen != 0 {
				p.read()
			}
		}
	}
	lease.Abort(abort)

	s.mu.Lock()
	defer s.mu.Unlock()
	errs := map[Key]error{}
	for i, err := range lease.Commit(commit) {
		errs[commit[i]] = err
	}
	for i, p := range all {
		if !p.inMem {
			continue
		}
		if p.err = errs[objects[i].Key]; p.err != nil {
			p.inMem = false
			continue
		}
		p.taken, p.fallen = 1, s.writersOf(Through)
		p.debt = s.hold(placed[i])
		p.debt.users++
		p.debt.summed, p.debt.sum = true, p.sum
		if back := s.writersOf(Back); s.owe(p.put.Object, back) != nil {
			p.fallen |= back // too much is owed: the caller writes it
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
		return fmt.Errorf("tier: object %v has more than %d bytes: %w", p.put.Object.Key, p.put.Object.Size, fs.ErrInvalid)
	case err != io.EOF:
		return err
	}
	return nil
}

func short(o Object, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("tier: reading object %v of %d bytes: %w", o.Key, o.Size, err)
}

// read has the bytes of the object on the heap, for levels that are written to without memory. The heap grows with what
// arrives, not with what was announced.
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
		p.err, p.fallen, p.taken = err, 0, 0
		return
	}
	p.bytes = b.Bytes()
	if p.bytes == nil {
		p.bytes = []byte{}
	}
}

// lower returns what a lower level gets. Bytes in memory are shared with other processes, so what they were is
// checked.
func (p *storing) lower() Put {
	switch {
	case p.put.From == nil:
		return Put{Object: p.put.Object, Bytes: p.put.Bytes}
	case p.inMem:
		return Put{Object: p.put.Object, From: &summed{key: p.put.Object.Key, rest: p.bytes, want: p.sum}}
	}
	return Put{Object: p.put.Object, Bytes: p.bytes}
}

// putLower writes to a level while the caller waits.
func (s *Store) putLower(ctx context.Context, l *lower, all []*storing) {
	bit := uint32(1) << l.index
	var some []*storing
	var puts []Put
	for _, p := range all {
		if p.fallen&bit != 0 {
			some = append(some, p)
			puts = append(puts, p.lower())
		}
	}
	if len(some) == 0 {
		return
	}
	select {
	case l.slots <- struct{}{}:
		s.putLevel(ctx, l, puts)
		<-l.slots
	case <-ctx.Done():
		for i := range puts {
			puts[i].Err = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range some {
		switch err := puts[i].Err; {
		case err == nil:
			p.taken++
			s.wrote(l, p.put.Object, nil)
		case p.inMem && (errors.Is(err, ErrUnavailable) || ctx.Err() != nil):
			if err := s.owe(p.put.Object, bit); err != nil {
				s.notOwed(p.put.Object, bit, err)
			}
		default:
			if errors.Is(err, errChanged) && !p.wrong {
				p.wrong = true
				p.taken--
			}
			s.wrote(l, p.put.Object, err)
			if p.err == nil || errors.Is(p.err, ErrPending) || !errors.Is(err, ErrUnavailable) {
				p.err = err
			}
		}
	}
}
