package shmring

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// A reader slot, 2048 bytes: what one living reader looks at in place.
//
//	offset  bytes  field
//	0       4      1 if taken
//	4       4      number of holds that may be in use
//	8       4      pid, for people
//	16      4 x n  holds: id of a chunk + 1, 0 if unused
//
// Its reader holds the lock on the slot's first byte (an open file description
// lock) for life.
const (
	slotTop   = 4
	slotPID   = 8
	slotHolds = 16
	maxHolds  = (slotSize - slotHolds) / 4
)

// Slot is a reader's place in the sidecar, where it says which chunks it looks
// at: the writer does not free these. The kernel knows whether it lives.
type Slot struct {
	c     *Control
	index int
	b     []byte

	mu   sync.Mutex
	used []bool
}

// TakeSlot takes a free reader slot, one for each opening of a sidecar. A slot of
// a reader that died is free. It
// fails with [ErrBusy] if all are taken.
func (c *Control) TakeSlot(pid int) (*Slot, error) {
	// Twice, since the writer has the lock of a dead reader's slot for a moment.
	for n := range 2 * c.opt.Slots {
		i := n % c.opt.Slots
		if ok, err := c.lockSlot(i); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		b := c.slot(i)
		clear(b[slotTop:])
		mem.Store32(b[slotPID:], uint32(pid))
		mem.Store32(b, 1)
		return &Slot{c: c, index: i, b: b}, nil
	}
	return nil, fmt.Errorf("%w: all %d reader slots of %s are taken; make the segment with more", ErrBusy, c.opt.Slots, c.path)
}

func (c *Control) slot(i int) []byte {
	at := c.slotOffset(i)
	return c.mem[at : at+slotSize : at+slotSize]
}

func (c *Control) slotOffset(i int) int { return offSlotTable + i*slotSize }

// lockSlot tries the lock of a slot. In private memory a slot is locked while it
// is marked taken.
func (c *Control) lockSlot(i int) (bool, error) {
	if c.file == nil {
		return mem.Load32(c.slot(i)) == 0, nil
	}
	return shmfile.TryLockByte(c.file, int64(c.slotOffset(i)))
}

// Hold says that the chunk id is being looked at, before its header is compared.
// It returns false if the slot has no place left.
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

// Release ends a hold.
func (s *Slot) Release(place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mem.Fence() // what was read comes before
	mem.Store32(s.b[slotHolds+4*place:], 0)
	s.used[place] = false
}

// Close gives the slot back.
func (s *Slot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.b)
	if s.c.file == nil {
		return nil
	}
	return shmfile.UnlockByte(s.c.file, int64(s.c.slotOffset(s.index)))
}

// Held returns the ids that living readers hold, and clears the slots of dead
// ones, of which it returns the number. Ids that are killed before the call and
// not in the answer are not looked at by anyone who compared the header.
func (c *Control) Held() (ids map[uint32]struct{}, dead int) {
	mem.Fence()
	for i := range c.opt.Slots {
		b := c.slot(i)
		if mem.Load32(b) == 0 {
			continue
		}
		var held []uint32
		for h := range min(int(mem.Load32(b[slotTop:])), maxHolds) {
			if v := mem.Load32(b[slotHolds+4*h:]); v != 0 {
				held = append(held, v-1)
			}
		}
		if c.reap(i) {
			dead++
			continue
		}
		for _, id := range held {
			if ids == nil {
				ids = map[uint32]struct{}{}
			}
			ids[id] = struct{}{}
		}
	}
	return ids, dead
}

// reap frees a slot whose reader is dead.
func (c *Control) reap(i int) bool {
	if c.file == nil {
		return false
	}
	at := int64(c.slotOffset(i))
	if ok, err := shmfile.TryLockByte(c.file, at); err != nil || !ok {
		return false
	}
	clear(c.slot(i))
	_ = shmfile.UnlockByte(c.file, at) // it is ours to unlock, so it can't fail
	return true
}

// Readers returns how many slots are taken, by living readers or dead ones.
func (c *Control) Readers() (n int) {
	for i := range c.opt.Slots {
		if mem.Load32(c.slot(i)) != 0 {
			n++
		}
	}
	return n
}

// Lock takes a lock among the readers that use the sidecar. Unlike vLLM's, it is
// free again when its holder dies. It waits until ctx ends.
func (c *Control) Lock(ctx context.Context) error {
	select {
	case c.lock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.file == nil {
		return nil
	}
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 2*time.Millisecond) {
		ok, err := shmfile.TryLockByte(c.file, offReadersLock)
		if ok {
			return nil
		}
		if err == nil {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		<-c.lock
		return err
	}
}

// Unlock gives the lock back.
func (c *Control) Unlock() error {
	defer func() { <-c.lock }()
	if c.file == nil {
		return nil
	}
	return shmfile.UnlockByte(c.file, offReadersLock)
}
