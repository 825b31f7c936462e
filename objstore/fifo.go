package objstore

import (
	"errors"
	"math"

	"github.com/ringcache/ringcache/shmring"
)

// fifo is vLLM's policy.
type fifo struct {
	w    *Writer
	ring *shmring.Ring
}

// alloc allocates, once more after freeing what it can.
func (p *fifo) alloc(size int, _ string, as turn) (address uint64, id uint32, payload []byte, err error) {
	line, room := &p.w.line, int64(p.w.opt.RingSize)
	if as == passing && p.extent(size) <= room && !line.mayPass(p.extent(size), room) {
		return 0, 0, nil, p.fullError(size + shmring.HeaderSize)
	}
	try := func() error {
		return p.w.sv.guard(Handle{}, func() (err error) {
			address, id, payload, err = p.ring.Alloc(size)
			return err
		})
	}
	// Also when it can never fit: upstream makes no difference, and frees.
	if err = try(); errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge) {
		if _, err = p.freeUnused(); err == nil {
			err = try()
		}
	}
	switch full := (*shmring.FullError)(nil); {
	case errors.As(err, &full):
		err = p.fullError(full.Need)
	case err == nil && as == passing:
		line.hasPassed(p.extent(size))
	}
	return address, id, payload, err
}

func (p *fifo) fullError(need int) error {
	return &FullError{Need: need, Used: p.ring.Used(), Size: p.ring.Size(), Waiting: p.w.line.wanted(), Head: p.head()}
}

func (*fifo) extent(size int) int64 { return int64(size) + shmring.HeaderSize }

// head describes the oldest chunk of a ring that is not empty.
func (p *fifo) head() *HeadState {
	w := p.w
	for id, address := range p.ring.Live() {
		o := w.objects[id]
		_, protected := w.touched[id]
		h := &HeadState{
			Key: o.key, ID: id, Reserved: o.state == reserved, Protected: protected, Leases: o.leases,
			Uses: o.uses, Readers: w.readers,
		}
		if !h.Reserved { // else its count is just being written
			h.Reads = w.reads(address)
		}
		return h
	}
	return &HeadState{}
}

func (p *fifo) freeUnused() ([]uint32, error) {
	var fault error
	free := func(id uint32, payload []byte) (ok bool) {
		// Guarded one by one: chunks that were freed before a fault are freed.
		fault = p.w.sv.guard(Handle{ID: id}, func() error { ok = p.isFree(id, payload); return nil })
		return ok && fault == nil
	}
	// A limit of twice the ring frees everything, and can't overflow.
	limit := min(p.w.opt.MaxObjectSize, p.w.opt.RingSize, math.MaxInt/2)
	freed := p.ring.Free(free, 2*limit)
	for _, id := range freed {
		p.w.forget(p.w.objects[id])
	}
	if f := p.w.line.first(); f != nil && len(freed) > 0 {
		p.w.rouse(f)
	}
	return freed, fault
}

func (p *fifo) isFree(id uint32, payload []byte) bool {
	o := p.w.objects[id]
	switch o.state {
	case discarded:
		return true
	case reserved:
		return false
	}
	if _, ok := p.w.touched[id]; ok || o.leases > 0 {
		return false
	}
	return readCount(payload) >= p.w.needed(o)
}

func (p *fifo) clear() error {
	for _, o := range p.w.index {
		p.w.watch(o, false)
	}
	p.ring.Clear()
	clear(p.w.objects)
	clear(p.w.index)
	clear(p.w.touched)
	p.w.wakeFirst(&p.w.line)
	return nil
}

// mayFit says whether the oldest chunk can be freed.
func (p *fifo) mayFit(*waiter) (ok bool) {
	for id, address := range p.ring.Live() {
		_ = p.w.sv.guard(Handle{}, func() error {
			c, err := p.ring.Access(address)
			ok = err == nil && p.isFree(id, c.Payload)
			return err
		})
		return ok
	}
	return true
}

func (p *fifo) lineOf(error, string) *line { return &p.w.line }

// Whatever happens to the oldest chunk may make room.

func (p *fifo) discard(*object) { p.w.wakeFirst(&p.w.line) } // freed when it is the oldest
func (p *fifo) changed(*object) error {
	p.w.wakeFirst(&p.w.line)
	return nil
}
func (p *fifo) touched(*object) { p.w.wakeFirst(&p.w.line) }

func (*fifo) hit(*object)           {}
func (*fifo) publish(*object) error { return nil }
func (*fifo) quarantine(*object)    {}
