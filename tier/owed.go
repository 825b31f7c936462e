package tier

import (
	"container/list"
	"context"
	"errors"
	"slices"
)

// owedID is the lease that holds what is still to be written. It is the same after a restart, so that
// the next store finds it.
const owedID = "ringcache store: to be written"

// maxUnheld bounds the debts that are not held: each takes less than a kilobyte.
const maxUnheld = 1 << 16

// owedSet is what the store holds in memory until lower levels have it. The lock of the store guards it.
type owedSet struct {
	lease  Lease
	most   int64
	slots  int // the most debts that are held; 0 is no limit
	quotas map[string]int64
	debts  map[Key]*debt
	unheld int   // debts that are not held
	bytes  int64 // of debts that are held, and that levels have not got
	of     map[string]int64
	// missed counts what was stored again since the last Drain, and went from memory, or was too much to
	// note, before a level was asked whether it has it.
	missed int
}

// debt is an object that levels are to get. It is held, which is to say pinned by the lease of the set,
// unless it was stored again, so that as a rule they have it, while a level was away or too much was owed:
// then it takes nothing of what may be owed until a level turns out to lack it.
type debt struct {
	key     Key // does not change, so workers need no lock for it
	object  Object
	offset  uint64
	bytes   []byte
	summed  bool   // sum is known
	sum     uint32 // CRC-32C of bytes when they were right
	held    bool
	users   int    // calls of Put that still use the bytes
	left    uint32 // levels, by index, that have not got it
	writing uint32 // those of left that a worker writes to
	recheck bool   // some levels may have it: it is from the time before a restart, or was stored again
	known   bool   // it is there since it was stored again, and no level was found to lack it: it is not held for a level that is away
	charged bool   // the bytes count: it is held, and left is not 0
	queued  [maxLower]*list.Element
	quiet   chan struct{} // closed when no worker writes it; nil if nobody waits
}

func newOwedSet(lease Lease, o Options) owedSet {
	return owedSet{lease: lease, most: o.MaxOwed, slots: o.Memory.Segment().Objects / 2, quotas: o.Quotas, debts: map[Key]*debt{}, of: map[string]int64{}}
}

// hasRoom reports whether an object may be owed, too.
func (o *owedSet) hasRoom(object Object) bool {
	if object.Size > o.most-o.bytes || o.slots > 0 && len(o.debts)-o.unheld >= o.slots {
		return false
	}
	quota, ok := o.quotas[object.Tenant]
	return !ok || object.Size <= quota-o.of[object.Tenant]
}

// writers returns the levels that are written to with one of the policies.
func (s *Store) writersOf(policies ...Write) (set uint32) {
	for _, l := range s.lower {
		for _, w := range policies {
			if l.Write == w {
				set |= 1 << l.index
			}
		}
	}
	return set
}

// owe notes that levels are to get an object that is in memory, and holds it there until they have it. The
// error is why it is owed to none of them.
func (s *Store) owe(object Object, levels uint32) error {
	if levels == 0 {
		return nil
	}
	d := s.owed.debts[object.Key]
	if (d == nil || !d.charged) && !s.owed.hasRoom(object) {
		return errQuota
	}
	if d == nil || !d.held {
		placed := s.owed.lease.Pin([]Key{object.Key})[0]
		if placed.Err != nil {
			return placed.Err
		}
		d = s.hold(placed)
	}
	d.known = false
	s.enqueue(d, levels)
	return nil
}

// enqueue has levels written to.
func (s *Store) enqueue(d *debt, levels uint32) {
	d.left |= levels
	s.charge(d)
	for _, l := range s.lower {
		if levels&(1<<l.index) != 0 && d.queued[l.index] == nil && d.writing&(1<<l.index) == 0 {
			d.queued[l.index] = l.fifo.PushBack(d)
		}
	}
	s.wake.Broadcast()
}

// oweKnown owes an object that memory had when somebody stored it again, since levels that were added, or
// lost it, may lack it. For levels that are away it is only noted: as a rule they have it, and nobody knows
// when they can be asked. It returns the levels for which it could not be held.
func (s *Store) oweKnown(k Key, levels uint32) (rest uint32) {
	if levels == 0 {
		return 0
	}
	found := s.memory.Stat(context.Background(), []Key{k})[0]
	if found.Err != nil {
		return levels
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	away := levels & s.unreachable()
	before := s.owed.debts[k]
	known := before == nil || before.known
	if s.owe(found.Object, levels&^away) != nil {
		rest = levels &^ away
	} else if d := s.owed.debts[k]; d != nil {
		d.recheck, d.known = true, known
	}
	s.noteKnown(found.Object, away)
	return rest
}

// noteKnown owes an object that was stored again without holding it.
func (s *Store) noteKnown(object Object, levels uint32) {
	if levels == 0 {
		return
	}
	d := s.owed.debts[object.Key]
	if d == nil {
		if s.owed.unheld == maxUnheld {
			s.owed.missed++
			return
		}
		d = &debt{key: object.Key, object: object, known: true}
		s.owed.debts[object.Key] = d
		s.owed.unheld++
	}
	d.recheck = true
	s.enqueue(d, levels)
}

// hold notes what the lease has. The caller has pinned it. It may be in another place than before, if memory
// had dropped it as damaged.
func (s *Store) hold(p Placed) *debt {
	d := s.owed.debts[p.Object.Key]
	switch {
	case d == nil:
		d = &debt{key: p.Object.Key}
		s.owed.debts[p.Object.Key] = d
	case !d.held:
		s.owed.unheld--
	}
	d.held = true
	if d.object.Size != p.Object.Size || d.offset != p.Offset {
		d.summed = false
	}
	s.uncharge(d) // as the object that it was: this one may have another size, or tenant
	d.object, d.offset, d.bytes = p.Object, p.Offset, p.Bytes
	s.charge(d)
	return d
}

// charge counts the bytes of what is held until levels have got it.
func (s *Store) charge(d *debt) {
	if !d.charged && d.held && d.left != 0 {
		d.charged = true
		s.owed.bytes += d.object.Size
		s.owed.of[d.object.Tenant] += d.object.Size
	}
}

func (s *Store) uncharge(d *debt) {
	if !d.charged {
		return
	}
	d.charged = false
	s.owed.bytes -= d.object.Size
	if s.owed.of[d.object.Tenant] -= d.object.Size; s.owed.of[d.object.Tenant] == 0 {
		delete(s.owed.of, d.object.Tenant)
	}
}

// dropDebt takes levels off a debt: because they have the object, or will not get it.
func (s *Store) dropDebt(d *debt, levels uint32) {
	d.left &^= levels
	for _, l := range s.lower {
		if e := d.queued[l.index]; e != nil && levels&(1<<l.index) != 0 {
			l.fifo.Remove(e)
			d.queued[l.index] = nil
		}
	}
	s.letGo(d)
}

// letGo unpins an object that is owed to nobody any more.
func (s *Store) letGo(d *debt) {
	if d.writing == 0 && d.quiet != nil {
		close(d.quiet)
		d.quiet = nil
	}
	if d.left == 0 {
		s.uncharge(d)
	}
	if d.known && d.held && d.left != 0 && d.left&^s.unreachable() == 0 && d.writing == 0 && d.users == 0 {
		s.unhold(d)
	}
	if d.left == 0 && d.writing == 0 && d.users == 0 && s.owed.debts[d.object.Key] == d {
		delete(s.owed.debts, d.object.Key)
		if d.held {
			s.owed.lease.Unpin([]Key{d.object.Key})
		} else {
			s.owed.unheld--
		}
		s.settle()
	}
}

// unreachable returns the levels that nothing can be written to now.
func (s *Store) unreachable() (set uint32) {
	for _, l := range s.lower {
		if l.away.Load() || l.resting {
			set |= 1 << l.index
		}
	}
	return set
}

// unholdKnown lets go of what is held for a level that nothing can be written to now, as far as it may have it.
func (s *Store) unholdKnown(l *lower) {
	var next *list.Element
	for e := l.fifo.Front(); e != nil; e = next {
		next = e.Next()
		s.letGo(e.Value.(*debt))
	}
}

// unhold keeps a debt as one that is not held.
func (s *Store) unhold(d *debt) {
	if s.owed.unheld == maxUnheld {
		return
	}
	s.uncharge(d)
	s.owed.lease.Unpin([]Key{d.key})
	d.held, d.bytes = false, nil
	s.owed.unheld++
}

// settle wakes those who wait for the set to get smaller.
func (s *Store) settle() {
	if s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

// oweAgain takes over what the store before had still to write.
func (s *Store) oweAgain() {
	levels := s.writersOf(Through, Back)
	keys := s.owed.lease.State().Pinned
	var there []Placed
	for i, p := range s.owed.lease.Pin(keys) {
		if p.Err != nil {
			s.options.Logger.Warn("tier: what was to be written is gone", "object", keys[i].String(), "error", p.Err)
			continue
		}
		there = append(there, p)
	}
	if levels != 0 {
		there = append(there, s.oweCommitted(keys)...)
	}
	for _, p := range parentsFirst(there) {
		d := s.hold(p)
		d.recheck = true
		s.enqueue(d, levels) // also beyond the limit: it was promised
		s.letGo(d)           // if no level is written to any more
	}
}

// oweCommitted takes what other leases than the store's pin into the store's, as far as there is room for debts, but for what
// it has. A process that was killed in a Commit, in front of the debt, has left the object pinned, and there is
// no telling it from what a client reads.
func (s *Store) oweCommitted(has []Key) []Placed {
	known := make(map[Key]bool, len(has))
	for _, k := range has {
		known[k] = true
	}
	var there []Placed
	room := s.owed.most
	for _, l := range s.Leases() {
		for _, k := range l.Pinned {
			if known[k] {
				continue
			}
			known[k] = true
			p := s.owed.lease.Pin([]Key{k})[0]
			switch {
			case p.Err != nil:
			case p.Object.Size > room || s.owed.slots > 0 && len(has)+len(there) >= s.owed.slots:
				s.owed.lease.Unpin([]Key{k})
			default:
				room -= p.Object.Size
				there = append(there, p)
			}
		}
	}
	return there
}

// hasten puts a debt in front of the others of levels.
func (s *Store) hasten(d *debt, levels uint32) {
	for _, l := range s.lower {
		if e := d.queued[l.index]; e != nil && levels&(1<<l.index) != 0 {
			l.fifo.MoveToFront(e)
		}
	}
}

// parentsFirst sorts what a lease has, in any order, as it was stored: a parent precedes its children.
func parentsFirst(placed []Placed) []Placed {
	rest := make(map[Key]Placed, len(placed))
	for _, p := range placed {
		rest[p.Object.Key] = p
	}
	sorted := make([]Placed, 0, len(placed))
	for _, p := range placed {
		from := len(sorted)
		for p, ok := rest[p.Object.Key]; ok; {
			delete(rest, p.Object.Key)
			sorted = append(sorted, p)
			parent, _ := p.Object.ParentKey()
			p, ok = rest[parent]
		}
		slices.Reverse(sorted[from:])
	}
	return sorted
}

// stored notes that an object is in memory under a lease of its owner, and owes it to lower levels.
func (s *Store) stored(object Object) {
	s.missing.stored(object.Key)
	levels := s.writersOf(Through, Back)
	if err := s.owe(object, levels); err != nil {
		s.notOwed(object, levels, err)
	}
}

// storedAgain has an object that is in memory written to the lower levels that lack it.
func (s *Store) storedAgain(object Object) {
	if rest := s.oweKnown(object.Key, s.writersOf(Through, Back)); rest != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noteKnown(object, rest)
	}
}

// copyUp owes an object that came from a level to the faster ones that want it by now.
func (s *Store) copyUp(c *carried) {
	n := s.ghosts.counted(c.key)
	if !c.counted { // by a Get
		n = s.ghosts.count(c.key)
	}
	var levels uint32
	for _, l := range s.lower[:c.from.index] {
		if l.PromoteAfter > 0 && n >= l.PromoteAfter && !l.away.Load() {
			levels |= 1 << l.index
		}
	}
	if err := s.owe(c.object, levels); err != nil {
		s.notOwed(c.object, levels, err)
	}
}

// notOwed counts what levels will not get.
func (s *Store) notOwed(object Object, levels uint32, err error) {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrEnded) {
		err = errUnwanted
	}
	for _, l := range s.lower {
		if levels&(1<<l.index) != 0 {
			s.wrote(l, object, err)
		}
	}
}
