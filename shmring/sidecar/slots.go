package sidecar

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Slot is a reader's place in the sidecar: it names the chunks that the reader looks at,
// and the writer does not free these. The reader holds the lock on the slot's first byte
// (an open file description lock) for life, so the kernel decides whether it lives.
type Slot struct {
	f     *File
	index int
	b     []byte

	mu   sync.Mutex
	used []bool
}

// TakeSlot takes a free reader slot, one for each opening of a sidecar. A slot of
// a reader that died is free. It
// fails with [ErrBusy] if all are taken.
func (f *File) TakeSlot(pid int) (*Slot, error) {
	// Twice, since the writer has the lock of a dead reader's slot for a moment.
	for n := range 2 * f.opt.Slots {
		i := n % f.opt.Slots
		if ok, err := f.lockSlot(i); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		b := f.slot(i)
		clear(b[slotTop:])
		mem.Store32(b[slotPID:], uint32(pid))
		mem.Store32(b[slotTaken:], 1)
		return &Slot{f: f, index: i, b: b}, nil
	}
	return nil, fmt.Errorf("%w: all %d reader slots of %s are taken; make the segment with more", ErrBusy, f.opt.Slots, f.path)
}

func (f *File) slot(i int) []byte {
	at := f.slotOffset(i)
	return f.mem[at : at+slotSize : at+slotSize]
}

func (f *File) slotOffset(i int) int { return offSlotTable + i*slotSize }

// lockSlot tries the lock of a slot. In private memory a slot is locked while it
// is marked taken.
func (f *File) lockSlot(i int) (bool, error) {
	if f.file == nil {
		return mem.Load32(f.slot(i)[slotTaken:]) == 0, nil
	}
	return shmfile.TryLockByte(f.file, int64(f.slotOffset(i)))
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
	if s.f.file == nil {
		return nil
	}
	return shmfile.UnlockByte(s.f.file, int64(s.f.slotOffset(s.index)))
}

// Held returns the ids that living readers hold, and clears the slots of dead
// ones, of which it returns the number. Ids that are killed before the call and
// not in the answer are not looked at by anyone who compared the header.
func (f *File) Held() (ids map[uint32]struct{}, dead int) {
	mem.Fence()
	for i := range f.opt.Slots {
		b := f.slot(i)
		if mem.Load32(b[slotTaken:]) == 0 {
			continue
		}
		var held []uint32
		for h := range min(int(mem.Load32(b[slotTop:])), maxHolds) {
			if v := mem.Load32(b[slotHolds+4*h:]); v != 0 {
				held = append(held, v-1)
			}
		}
		if f.reap(i) {
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
func (f *File) reap(i int) bool {
	if f.file == nil {
		return false
	}
	at := int64(f.slotOffset(i))
	if ok, err := shmfile.TryLockByte(f.file, at); err != nil || !ok {
		return false
	}
	clear(f.slot(i))
	_ = shmfile.UnlockByte(f.file, at) // it is ours to unlock, so it can't fail
	return true
}

// Lock takes a lock among the readers that use the sidecar; the writer has no part in it. Unlike vLLM's, it is
// free again when its holder dies. It waits until ctx ends.
func (f *File) Lock(ctx context.Context) error {
	select {
	case f.readers <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.file == nil {
		return nil
	}
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, 2*time.Millisecond) {
		ok, err := shmfile.TryLockByte(f.file, offReadersLock)
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
		<-f.readers
		return err
	}
}

// Unlock gives the lock back.
func (f *File) Unlock() error {
	defer func() { <-f.readers }()
	if f.file == nil {
		return nil
	}
	return shmfile.UnlockByte(f.file, offReadersLock)
}
