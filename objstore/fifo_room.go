package objstore

import (
	"errors"
	"math"

	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// allocate takes a chunk, once more after freeing what it can.
func (f *FIFO) allocate(size int, as line.Role) (address uint64, id uint32, payload []byte, err error) {
	first, room := &f.waiters.Main, int64(f.opt.RingSize)
	need := fifoExtent(size)
	if as == line.Passing && need <= room && !first.MayPass(need, room) {
		return 0, 0, nil, f.headError(int(need))
	}
	try := func() error {
		return f.guard(func() (err error) {
			address, id, payload, err = f.ring.Alloc(size)
			return err
		})
	}
	// Also when it can never fit: upstream makes no difference, and frees.
	if err = try(); errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge) {
		if _, err = f.freeUnused(); err == nil {
			err = try()
		}
	}
	if err != nil {
		return 0, 0, nil, f.roomError(size, err)
	}
	if as == line.Passing {
		first.Passed(need)
	}
	return address, id, payload, nil
}

// roomError returns the store's error for one of the ring.
func (f *FIFO) roomError(size int, err error) error {
	var full *shmring.FullError
	var never *shmring.TooLargeError
	switch {
	case errors.As(err, &full):
		return f.headError(full.Need)
	case errors.As(err, &never):
		limit := never.Limit - shmring.HeaderSize
		return &shmstore.TooLargeError{
			Size: size, Limit: limit, Ring: never.Limit < shmring.MaxChunk, Format: never.Limit == shmring.MaxChunk,
		}
	}
	return err
}

// fifoExtent returns the bytes of a chunk with such a payload.
func fifoExtent(size int) int64 { return int64(size) + shmring.HeaderSize }

// headError describes the oldest chunk of a ring that is not empty.
func (f *FIFO) headError(need int) error {
	e := &HeadError{Need: need, Used: f.ring.Used(), Size: f.ring.Size(), Waiting: f.waiters.Main.Wanted()}
	for id := range f.ring.Live() {
		o := f.objects[id]
		e.Key, e.ID, e.Reserved, e.Touched = o.key, id, o.state == fifoReserved, o.touched
		e.Leases, e.Uses, e.Readers = o.leases, o.uses, f.readers
		if !e.Reserved { // else its count is just being written
			e.Reads = f.reads(o)
		}
		break
	}
	return e
}

// freeUnused frees chunks, oldest first, whose uses were all read by every reader,
// until twice MaxObjectSize bytes were freed or one is still needed. It returns the ids.
func (f *FIFO) freeUnused() ([]uint32, error) {
	var fault error
	free := func(id uint32, payload []byte) (ok bool) {
		// Guarded one by one: chunks that were freed before a fault are freed.
		fault = f.chunks.guard(&serde.Address{ID: id}, func() error { ok = f.isFree(id, payload); return nil })
		return ok && fault == nil
	}
	// A limit of twice the ring frees everything, and can't overflow.
	limit := min(f.opt.MaxObjectSize, f.opt.RingSize, math.MaxInt/2)
	freed := f.ring.Free(free, 2*limit)
	for _, id := range freed {
		if o := f.objects[id]; f.forget(o) {
			f.watch(o, false)
		}
	}
	if first := f.waiters.Main.First(); first != nil && len(freed) > 0 {
		f.waiters.Wake(first)
	}
	return freed, fault
}

func (f *FIFO) isFree(id uint32, payload []byte) bool {
	o := f.objects[id]
	switch {
	case o.state == fifoDiscarded:
		return true
	case o.state == fifoReserved, o.touched, o.leases > 0:
		return false
	}
	return readCount(payload) >= f.needed(o)
}

// wakeFirst wakes the first one that waits, if the oldest chunk can be freed.
func (f *FIFO) wakeFirst() {
	first := f.waiters.Main.First()
	if first == nil {
		return
	}
	ok := true
	for id, address := range f.ring.Live() {
		_ = f.guard(func() error {
			c, err := shmring.ReadChunk(f.chunks.seg.Ring(), address)
			ok = err == nil && f.isFree(id, c.Payload)
			return err
		})
		break
	}
	if ok {
		f.waiters.Wake(first)
	}
}
