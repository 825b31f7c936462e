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

// owedSet is what the store holds in memory until lower levels have it. The lock of the store guards it.
type owedSet struct {
	lease  Lease
	most   int64
	slots  int // the most debts; 0 is no limit
	quotas map[string]int64
	debts  map[Key]*debt
	bytes  int64 // of debts that levels have not got
	of     map[string]int64
}

// debt is an object under the lease.
type debt struct {
	key     Key // does not change, so workers need no lock for it
	object  Object
	offset  uint64
	bytes   []byte
	summed  bool   // sum is known
	sum     uint32 // CRC-32C of bytes when they were right
	users   int    // calls of Put that still use the bytes
	left    uint32 // levels, by index, that have not got it
	writing uint32 // those of left that a worker writes to
	recheck bool   // some levels may have it: it is from the time before a restart, or was stored again
	charged bool   // the bytes count
	queued  [maxLower]*list.Element
	quiet   chan struct{} // closed when no worker writes it; nil if nobody waits
}

func newOwedSet(lease Lease, o Options) owedSet {
	return owedSet{lease: lease, most: o.MaxOwed, slots: o.Memory.Segment().Objects / 2, quotas: o.Quotas, debts: map[Key]*debt{}, of: map[string]int64{}}
}

// hasRoom reports whether an object may be owed, too.
func (o *owedSet) hasRoom(object Object) bool {
	if object.Size > o.most-o.bytes || o.slots > 0 && len(o.debts) >= o.slots {
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
	if d == nil {
		placed := s.owed.lease.Pin([]Key{object.Key})[0]
		if placed.Err != nil {
			return placed.Err
		}
		d = s.hold(placed)
	}
	s.charge(d)
	d.left |= levels
	for _, l := range s.lower {
		if levels&(1<<l.index) != 0 && d.queued[l.index] == nil && d.writing&(1<<l.index) == 0 {
			d.queued[l.index] = l.fifo.PushBack(d)
		}
	}
	s.wake.Broadcast()
	return nil
}

// oweKnown owes an object that memory had when somebody stored it again: levels that were added, or lost it, may lack it. The
// error is why it is owed to none of them.
func (s *Store) oweKnown(k Key, levels uint32) error {
	if levels == 0 {
		return nil
	}
	found := s.memory.Stat(context.Background(), []Key{k})[0]
	if found.Err != nil {
		return found.Err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.owe(found.Object, levels); err != nil {
		return err
	}
	if d := s.owed.debts[k]; d != nil {
		d.recheck = true
	}
	return nil
}

// hold notes what the lease has. The caller has pinned it. It may be in another place than before, if memory
// had dropped it as damaged.
func (s *Store) hold(p Placed) *debt {
	d := s.owed.debts[p.Object.Key]
	if d == nil {
		d = &debt{key: p.Object.Key}
		s.owed.debts[p.Object.Key] = d
	}
	if d.object.Size != p.Object.Size || d.offset != p.Offset {
		d.summed = false
	}
	charged := d.charged
	s.uncharge(d) // as the object that it was: this one may have another size, or tenant
	d.object, d.offset, d.bytes = p.Object, p.Offset, p.Bytes
	if charged {
		s.charge(d)
	}
	return d
}

func (s *Store) charge(d *debt) {
	if !d.charged {
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
	if d.left == 0 && d.writing == 0 && d.users == 0 && s.owed.debts[d.object.Key] == d {
		delete(s.owed.debts, d.object.Key)
		s.owed.lease.Unpin([]Key{d.object.Key})
		s.settle()
	}
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
		s.charge(d) // also beyond the limit: it was promised
		d.left = levels
		for _, l := range s.lower {
			if levels&(1<<l.index) != 0 {
				d.queued[l.index] = l.fifo.PushBack(d)
			}
		}
		s.letGo(d) // if no level is written to any more
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

// storedAgain owes an object that is in memory to the lower levels that lack it.
func (s *Store) storedAgain(object Object) {
	levels := s.writersOf(Through, Back)
	if err := s.oweKnown(object.Key, levels); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notOwed(object, levels, err)
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
