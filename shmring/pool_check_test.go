package shmring_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/ringtest"
	"github.com/ringcache/ringcache/shmring"
)

// testedPool is a Pool as package ringtest wants it.
type testedPool struct {
	*shmring.Pool
	buf []byte
}

func newTestedPool(o shmring.PoolOptions) ringtest.New {
	return func(size int, firstID uint32) ringtest.Ring {
		o.FirstID = firstID
		buf := make([]byte, size)
		return testedPool{shmring.NewPool(buf, o), buf}
	}
}

func (p testedPool) Alloc(size int) (uint64, uint32, error) {
	address, id, _, err := p.Pool.Alloc(size)
	return address, id, err
}

func (p testedPool) Free(ids []uint32) (freed []uint32) {
	live := p.Live()
	for _, id := range ids {
		if _, ok := live[id]; ok {
			p.Pool.Free(id)
			delete(live, id)
			freed = append(freed, id)
		}
	}
	return freed
}

func (p testedPool) Live() map[uint32]uint64 { return maps.Collect(p.Pool.Live()) }
func (p testedPool) Bytes() []byte           { return p.buf }

// State has no positions. The oldest id is the one farthest behind the next.
func (p testedPool) State() ringtest.State {
	s := ringtest.State{IDStart: p.NextID(), IDEnd: p.NextID()}
	age := func(id uint32) uint32 { return (p.NextID() - id) % shmring.IDLimit }
	for id := range p.Live() {
		if age(id) > age(s.IDStart) {
			s.IDStart = id
		}
	}
	return s
}

func poolOptions() ringtest.Options {
	return ringtest.Options{StaleAtOnce: true, Also: []fuzz.Invariant[*ringtest.Step]{structure, {
		Name: "largest",
		Why:  "whoever is refused asks for room by the size of the largest hole",
		Holds: func(s *ringtest.Step) error {
			p := s.Ring.(testedPool)
			if s.Refused != nil && s.Size > 0 && s.Size < 1<<20 && p.Extent(s.Size) <= p.Largest() {
				return fmt.Errorf("%d bytes were refused (%w) with a hole of %d", s.Size, s.Refused, p.Largest())
			}
			return nil
		},
	}}}
}

func TestPoolInvariants(t *testing.T) {
	for name, o := range map[string]shmring.PoolOptions{
		"without an offset": {}, "32 ahead": {DataOffset: 32}, "a unit of 256, 64 in front": {Granule: 256, Lead: 64},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{0, 700, 3000} {
				test := poolOptions()
				test.Size, test.Ops = size, 5000
				ringtest.Check(t, newTestedPool(o), test)
			}
		})
	}
}

func FuzzPool(f *testing.F) {
	o := poolOptions()
	o.Size = 1000
	ringtest.Fuzz(f, newTestedPool(shmring.PoolOptions{DataOffset: 32}), o)
}

// restoredPool is a Pool that is made anew from its chunks before each operation, as an adopter
// makes it.
type restoredPool struct {
	testedPool
	o     shmring.PoolOptions
	sizes map[uint32]int // of chunks
}

func (p *restoredPool) restore() {
	var chunks []shmring.Chunk
	for id, address := range p.Live() {
		chunks = append(chunks, shmring.Chunk{Address: address, ID: id, Size: p.sizes[id]})
	}
	next := shmring.NewPool(p.buf, p.o)
	if kept := next.Restore(chunks, p.NextID()); len(kept) != len(chunks) {
		panic(fmt.Sprintf("%d of %d chunks were restored", len(kept), len(chunks)))
	}
	p.Pool = next
}

func (p *restoredPool) Alloc(size int) (uint64, uint32, error) {
	p.restore()
	address, id, err := p.testedPool.Alloc(size)
	if err == nil {
		p.sizes[id] = size + shmring.HeaderSize
	}
	return address, id, err
}

func (p *restoredPool) Free(ids []uint32) []uint32 {
	p.restore()
	return p.testedPool.Free(ids)
}

func TestRestoredPoolInvariants(t *testing.T) {
	o := shmring.PoolOptions{DataOffset: 32}
	ringtest.Check(t, func(size int, firstID uint32) ringtest.Ring {
		return &restoredPool{newTestedPool(o)(size, firstID).(testedPool), o, map[uint32]int{}}
	}, ringtest.Options{Size: 3000, Ops: 10_000, StaleAtOnce: true, Also: []fuzz.Invariant[*ringtest.Step]{structure}})
}

func TestPoolExhaustively(t *testing.T) {
	o := poolOptions()
	o.Size, o.Depth = 300, 5
	ringtest.Exhaust(t, newTestedPool(shmring.PoolOptions{DataOffset: 32}), o)
}

// Crashes are those of a single call. What a reader holds and what an adopter finds in a pool's table
// is tested in objstore.
func TestPoolCrashes(t *testing.T) {
	o := poolOptions()
	o.Size = 700
	ringtest.Crash(t, newTestedPool(shmring.PoolOptions{DataOffset: 32}), o, nil)
}
