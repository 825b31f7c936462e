package ringtest_test

import (
	"slices"

	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/ringtest"
)

// plain is the model as a ring: all invariants hold for it but stale-at-once.
type plain struct{ *model.FIFO }

func newPlain(r model.Release, size int, firstID uint32) *plain {
	return &plain{model.NewFIFO(r, size, firstID)}
}

func (p *plain) Alloc(size int) (uint64, uint32, error) {
	address, id, err := p.FIFO.Alloc(size)
	return uint64(address), id, err
}

func (p *plain) Free(ids []uint32) []uint32 {
	return p.FIFO.Free(func(id uint32) bool { return slices.Contains(ids, id) }, len(p.Memory))
}

func (p *plain) Live() map[uint32]uint64 {
	out := map[uint32]uint64{}
	for id, address := range p.FIFO.Live {
		out[id] = uint64(address)
	}
	return out
}

func (p *plain) State() ringtest.State {
	return ringtest.State{Start: uint64(p.Start), End: uint64(p.End), IDStart: p.IDStart, IDEnd: p.IDEnd}
}

func (p *plain) Bytes() []byte { return p.Memory }

// broken is a plain ring with a defect.
type broken struct {
	*plain
	alloc func(p *plain, size int) (uint64, uint32, error)
	free  func(p *plain, ids []uint32) []uint32
	live  func(p *plain) map[uint32]uint64
	state func(p *plain) ringtest.State
}

func (b broken) Alloc(size int) (uint64, uint32, error) {
	if b.alloc != nil {
		return b.alloc(b.plain, size)
	}
	return b.plain.Alloc(size)
}

func (b broken) Free(ids []uint32) []uint32 {
	if b.free != nil {
		return b.free(b.plain, ids)
	}
	return b.plain.Free(ids)
}

func (b broken) Live() map[uint32]uint64 {
	if b.live != nil {
		return b.live(b.plain)
	}
	return b.plain.Live()
}

func (b broken) State() ringtest.State {
	if b.state != nil {
		return b.state(b.plain)
	}
	return b.plain.State()
}
