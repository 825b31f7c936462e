package sidecar

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Slot is the part of a sidecar in which one reader names the chunks that it looks at, so
// that the writer does not free them. Until Close, the reader holds a lock on the first byte
// of the slot (an open file description lock), which the kernel releases if the reader dies.
type Slot struct {
	all   *slots
	index int
	b     []byte

	mu   sync.Mutex
	used []bool
}

// slots are the part of a sidecar in which readers name what they look at.
type slots struct{ *mapping }

// TakeSlot takes a free slot for this reader; pid is recorded for people. A File can take
// one slot. The slot of a reader that died is free. TakeSlot fails with [ErrBusy] if all
// slots are taken.
func (s *slots) TakeSlot(pid int) (*Slot, error) {
	// Twice, because the writer holds the lock of a dead reader's slot for a moment.
	for n := range 2 * s.opt.Slots {
		i := n % s.opt.Slots
		if ok, err := s.lockSlot(i); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		failpoint.Hit("sidecar.slot.locked")
		b := s.slot(i)
		clear(b[slotTop:])
		mem.Store32(b[slotPID:], uint32(pid))
		s.mark(i)
		failpoint.Hit("sidecar.slot.marked")
		return &Slot{all: s, index: i, b: b}, nil
	}
	return nil, fmt.Errorf("%w: all %d reader slots of %s are taken; make the segment with more",
		ErrBusy, s.opt.Slots, s.path)
}

func (s *slots) slot(i int) []byte {
	at := slotOffset(i)
	return s.mem[at : at+slotSize : at+slotSize]
}

func slotOffset(i int) int { return slotsStart + i*slotSize }

// lockSlot tries to lock slot i. In private memory a slot counts as locked while its mark
// is set.
func (s *slots) lockSlot(i int) (bool, error) {
	if s.file == nil {
		mark, _ := s.loadMark(i)
		return mark == 0, nil
	}
	return shmfile.TryLockByte(s.file, int64(slotOffset(i)))
}

// slotLocked reports whether a process has the lock of slot i, which is marked. If nobody can say, one has it.
func (s *slots) slotLocked(i int) bool {
	if s.file == nil {
		return true
	}
	locked, err := shmfile.ByteLocked(s.file, int64(slotOffset(i)))
	return locked || err != nil
}

// Hold names the chunk id in the slot. The caller compares the id in the chunk's header
// afterwards: if it is still there, the writer does not free the chunk before Release. ok is
// false if the slot has no place left.
func (s *Slot) Hold(id uint32) (place int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if place = slices.Index(s.used, false); place < 0 {
		if place = len(s.used); place == maxHolds {
			return 0, false
		}
		mem.Store32(s.b[slotTop:], uint32(place+1))
	}
	mem.Store32(s.b[slotHolds+4*place:], id+1)
	mem.Fence() // before the header is read
	// Last, so that no place is lost if the memory is gone.
	if place == len(s.used) {
		s.used = append(s.used, false)
	}
	s.used[place] = true
	return place, true
}

// Release ends the hold that Hold returned as place.
func (s *Slot) Release(place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem.Fence() // what was read comes before
	mem.Store32(s.b[slotHolds+4*place:], 0)
	s.used[place] = false
}

// Close clears the slot and releases its lock.
func (s *Slot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem.Fence() // what was read comes before
	clear(s.b[slotTop:])
	failpoint.Hit("sidecar.slot.cleared")
	s.all.unmark(s.index)
	failpoint.Hit("sidecar.slot.unmarked")
	if s.all.file == nil {
		return nil
	}
	return shmfile.UnlockByte(s.all.file, int64(slotOffset(s.index)))
}

// Held returns the ids of all chunks that living readers name in their slots. It clears the
// slots of readers that died with a chunk named, and returns their number. If the writer took
// the id out of a chunk's header before the call and Held does not return the id, no reader
// looks at the chunk.
func (s *slots) Held() (ids map[uint32]struct{}, dead int) {
	return s.held(func(uint32) bool { return true })
}

// fewIDs is how many ids are compared one by one with each place in use.
const fewIDs = 16

// HeldOf is Held for those who ask for some ids: the result may lack others, and the kernel is
// asked only for the locks of slots that name one of these.
func (s *slots) HeldOf(ids []uint32) (held map[uint32]struct{}, dead int) {
	if len(ids) > fewIDs {
		return s.Held()
	}
	return s.held(func(id uint32) bool { return slices.Contains(ids, id) })
}

func (s *slots) held(counts func(id uint32) bool) (ids map[uint32]struct{}, dead int) {
	mem.Fence()
	for i := s.marked(0); i < s.opt.Slots; i = s.marked(i + 1) {
		if !s.names(i, counts) {
			continue // whether the reader is alive does not matter
		}
		if s.reap(i) {
			dead++
			continue
		}
		if ids == nil {
			ids = map[uint32]struct{}{}
		}
		s.names(i, func(id uint32) bool {
			if counts(id) {
				ids[id] = struct{}{}
			}
			return false
		})
	}
	return ids, dead
}

// names reports whether slot i names a chunk that counts.
func (s *slots) names(i int, counts func(id uint32) bool) bool {
	b := s.slot(i)
	for h := range min(int(mem.Load32(b[slotTop:])), maxHolds) {
		if v := mem.Load32(b[slotHolds+4*h:]); v != 0 && counts(v-1) {
			return true
		}
	}
	return false
}

// Reap clears the slots of all dead readers and returns their number.
func (s *slots) Reap() (dead int) {
	for i := s.marked(0); i < s.opt.Slots; i = s.marked(i + 1) {
		if s.reap(i) {
			dead++
		}
	}
	return dead
}

// reap clears slot i if its reader is dead, and reports whether it was.
func (s *slots) reap(i int) bool {
	if s.file == nil {
		return false
	}
	at := int64(slotOffset(i))
	if ok, err := shmfile.TryLockByte(s.file, at); err != nil || !ok {
		return false
	}
	clear(s.slot(i)[slotTop:])
	s.unmark(i)
	_ = shmfile.UnlockByte(s.file, at) // this process holds the lock, so it can't fail
	return true
}
