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
func (p *fifo) alloc(size int, _ string) (address uint64, id uint32, payload []byte, err error) {
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
	if full := (*shmring.FullError)(nil); errors.As(err, &full) {
		err = &FullError{Need: full.Need, Used: full.Used, Size: full.Size, Head: p.head()}
	}
	return address, id, payload, err
}

// head describes the oldest chunk of a ring that is not empty.
func (p *fifo) head() *HeadState {
	w := p.w
	for id, address := range p.ring.Live() {
		o := w.objects[id]
		_, protected := w.touched[id]
		return &HeadState{
			Key: o.key, ID: id, Reserved: o.state == reserved, Protected: protected, Leases: o.leases,
			Uses: o.uses, Reads: w.reads(address), Readers: w.readers,
		}
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
	return nil
}

func (*fifo) hit(*object)           {}
func (*fifo) publish(*object) error { return nil }
func (*fifo) discard(*object)       {} // freed when it is the oldest
func (*fifo) changed(*object) error { return nil }
func (*fifo) quarantine(*object)    {}
