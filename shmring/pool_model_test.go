package shmring_test

import (
	"errors"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
	"github.com/ringcache/ringcache/fuzz/ringtest"
	"github.com/ringcache/ringcache/shmring"
)

// judgedPool is a Pool whose every step goes to the model, which has the memory as docs/format.md has it.
type judgedPool struct {
	testedPool
	model *model.Pool
	wrong error
}

func (p *judgedPool) judge(err error) {
	p.wrong = errors.Join(p.wrong, err, p.model.Check(p.buf))
}

func (p *judgedPool) Alloc(size int) (uint64, uint32, error) {
	address, id, err := p.testedPool.Alloc(size)
	if err != nil {
		p.judge(p.model.Refuse(size))
	} else {
		p.judge(p.model.Alloc(size, address, id))
	}
	return address, id, err
}

func (p *judgedPool) Publish(id uint32) {
	p.testedPool.Publish(id)
	p.judge(p.model.Publish(id))
}

// Free kills first and then looks for readers, as a store does.
func (p *judgedPool) Free(ids []uint32) []uint32 {
	live := p.Live()
	for _, id := range ids {
		if _, ok := live[id]; ok && id%2 == 0 {
			p.Kill(id)
			p.judge(p.model.Kill(id))
			p.Publish(id) // one holds it
		}
	}
	freed := p.testedPool.Free(ids)
	for _, id := range freed {
		p.wrong = errors.Join(p.wrong, p.model.Free(id))
	}
	p.judge(nil)
	return freed
}

func TestPoolAgainstTheModel(t *testing.T) {
	o := ringtest.Options{Ops: 20_000, Size: 1500, Also: []fuzz.Invariant[*ringtest.Step]{{
		Name:  "format",
		Why:   "readers and adopters rely on what docs/format.md has about places and headers",
		Holds: func(s *ringtest.Step) error { return s.Ring.(*judgedPool).wrong },
	}}}
	for _, p := range []shmring.PoolOptions{{}, {DataOffset: 32}, {DataOffset: 32, Granule: 256}} {
		ringtest.Check(t, func(size int, firstID uint32) ringtest.Ring {
			inner := newTestedPool(p)(size, firstID).(testedPool)
			return &judgedPool{inner, model.NewPool(size, p.DataOffset, max(p.Granule, 64), firstID), nil}
		}, o)
	}
}
