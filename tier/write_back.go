package tier

import (
	"container/list"
	"context"
	"errors"
	"fmt"
)

// maxSkipped is how many debts of a level are looked at that can't be written yet.
const maxSkipped = 256

// chooseWrite takes debts that can be written now: of one level, in the order in which they were stored. Half of the workers
// write at the most.
func (s *Store) chooseWrite() func() {
	if s.writers >= s.options.MaxCalls/2 {
		return nil
	}
	for _, l := range s.lower {
		if l.away.Load() || l.resting {
			continue
		}
		if batch, size := s.pick(l); len(batch) > 0 {
			s.writers++
			l.writers++
			s.writing.add(size, nil, 1)
			return func() { s.write(l, batch, size) }
		}
	}
	return nil
}

// pick takes debts off a level's list. A child waits until its parent is written, or goes behind it in the same batch. If
// all that is looked at waits, and nobody writes what it waits for, the order gives way: the parents may be far behind
// in the list, or name each other.
func (s *Store) pick(l *lower) (batch []*debt, size int64) {
	batch, size, waiting := s.pickFrom(l, true)
	if len(batch) == 0 && waiting && l.writers == 0 {
		batch, size, _ = s.pickFrom(l, false)
	}
	return batch, size
}

// pickFrom is pick with or without the order of parents. waiting is false if there was something to write, but no room for it.
func (s *Store) pickFrom(l *lower, inOrder bool) (batch []*debt, size int64, waiting bool) {
	bit := uint32(1) << l.index
	taken := map[Key]bool{}
	skipped := 0
	var following *list.Element
	for e := l.fifo.Front(); e != nil && len(batch) < maxTogether && skipped < maxSkipped; e = following {
		following = e.Next()
		d := e.Value.(*debt)
		if inOrder && s.waitsForParent(d, bit, taken) || s.deleting[d.object.Key] > 0 {
			skipped++
			continue
		}
		if len(batch) == 0 && !s.writing.hasRoom(d.object.Size) ||
			len(batch) > 0 && size+d.object.Size > min(bytesTogether, s.writing.most-s.writing.bytes) {
			return batch, size, false
		}
		l.fifo.Remove(e)
		d.queued[l.index] = nil
		d.writing |= bit
		taken[d.object.Key] = true
		batch = append(batch, d)
		size += d.object.Size
	}
	return batch, size, true
}

// waitsForParent reports whether the parent of a debt has to be written before it, and is not in the batch yet.
func (s *Store) waitsForParent(d *debt, bit uint32, taken map[Key]bool) bool {
	parent, ok := d.object.ParentKey()
	p := s.owed.debts[parent]
	return ok && p != nil && p.left&bit != 0 && !taken[parent]
}

// write writes debts to a level.
func (s *Store) write(l *lower, batch []*debt, size int64) {
	errs := s.writeOut(l, batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers--
	l.writers--
	s.writing.add(size, nil, -1)
	bit := uint32(1) << l.index
	var again []*debt
	for i, d := range batch {
		d.writing &^= bit
		switch err := errs[i]; {
		case d.left&bit == 0: // Delete took it off
			s.letGo(d)
		case err != nil && (retry(err) || s.stopping):
			d.queued[l.index] = l.fifo.PushFront(d)
			again = append(again, d)
		default:
			l.pause = 0
			s.dropDebt(d, bit)
			if errors.Is(err, errChanged) {
				s.discard(d.key)
			}
		}
	}
	if len(again) == 0 {
		return
	}
	first := l.pause == 0 // after a success
	s.pauseWrites(l)
	for _, d := range again {
		s.letGo(d)
	}
	if first {
		s.unholdKnown(l)
	}
}

// discard deletes from memory what is known to be wrong. What another level is still owed comes here again with the
// write to that one. What a lease has pinned stays.
func (s *Store) discard(k Key) { s.memory.Delete(context.Background(), []Key{k}) }

// retry reports whether a debt stays one: the level is away, and may come back.
func retry(err error) bool { return errors.Is(err, ErrUnavailable) }

// writeOut returns the errors of the debts.
func (s *Store) writeOut(l *lower, batch []*debt) []error {
	errs := make([]error, len(batch))
	puts := make([]Put, 0, len(batch))
	places := make([]int, 0, len(batch))
	there := s.recheck(l, batch, errs)
	for i, d := range batch {
		if there[d] || errs[i] != nil {
			continue
		}
		var p Put
		if p, errs[i] = s.checked(d); errs[i] != nil {
			if s.ctx.Err() == nil && !errors.Is(errs[i], errUnwanted) {
				errs[i] = fmt.Errorf("tier: object %v can't be written, memory has lost it: %w (%s)", p.Object.Key, ErrNotFound, errs[i].Error())
				s.refused(l, p.Object, errs[i])
			}
			continue
		}
		puts = append(puts, p)
		places = append(places, i)
	}
	if len(puts) > 0 {
		s.putLevel(s.ctx, l, puts)
	}
	for i, p := range puts {
		errs[places[i]] = p.Err
		switch {
		case p.Err == nil:
			s.wrote(l, p.Object, nil)
		case !retry(p.Err) && s.ctx.Err() == nil:
			s.refused(l, p.Object, p.Err)
		}
	}
	return errs
}

// refused notes that a level will not get an object. A level that is full refuses every one: so there is a
// line a minute for each cause.
func (s *Store) refused(l *lower, o Object, err error) {
	s.wrote(l, o, err)
	l.refusals[causeOf(err)].Warn(s.options.Logger, "tier: an object was not written", "level", l.name, "object", o.Key.String(), "error", err)
}

// checked returns a debt as a level gets it. Other processes can write to memory: so what the level gets has to
// have the checksum that memory vouches for.
func (s *Store) checked(d *debt) (Put, error) {
	s.mu.Lock()
	placed := s.owed.lease.Pin([]Key{d.key})[0] // it may have been dropped, and stored again
	if placed.Err != nil {
		object := d.object
		if !d.held {
			s.owed.missed++
			placed.Err = errUnwanted
		}
		s.mu.Unlock()
		return Put{Object: object}, placed.Err
	}
	s.hold(placed)
	known, sum := d.summed, d.sum
	s.mu.Unlock()
	if !known {
		var w summing
		get := []Get{{Key: d.key, To: &w}}
		if s.memory.Get(s.ctx, get); get[0].Err != nil {
			return Put{Object: placed.Object}, get[0].Err
		}
		sum = w.sum
	}
	return Put{Object: placed.Object, From: &summed{key: d.key, rest: placed.Bytes, want: sum}}, nil
}

// recheck finds out which debts of objects that were stored before the level has already. errs gets the
// errors of those that it can't be asked for.
func (s *Store) recheck(l *lower, batch []*debt, errs []error) map[*debt]bool {
	var places []int
	var keys []Key
	s.mu.Lock()
	for i, d := range batch {
		if d.recheck {
			places = append(places, i)
			keys = append(keys, d.key)
		}
	}
	s.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	there := map[*debt]bool{}
	found, _ := s.statLevel(s.ctx, l, keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range found {
		d := batch[places[i]]
		switch {
		case f.Err == nil:
			there[d] = true
		case retry(f.Err):
			errs[places[i]] = f.Err
		default:
			d.known = false
		}
	}
	return there
}
