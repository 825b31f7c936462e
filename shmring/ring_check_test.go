package shmring_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/ringtest"
	"github.com/ringcache/ringcache/shmring"
)

// testedRing is a Ring as package ringtest wants it.
type testedRing struct {
	*shmring.Ring
	buf []byte
}

func newTestedRing(o shmring.RingOptions) ringtest.New {
	return func(size int, firstID uint32) ringtest.Ring {
		o.FirstID = firstID
		buf := make([]byte, size)
		return testedRing{shmring.NewRing(buf, o), buf}
	}
}

func (r testedRing) Alloc(size int) (uint64, uint32, error) {
	address, id, _, err := r.Ring.Alloc(size)
	return address, id, err
}

func (r testedRing) Free(ids []uint32) []uint32 {
	return r.Ring.Free(func(id uint32, _ []byte) bool { return slices.Contains(ids, id) }, r.Size())
}

func (r testedRing) Live() map[uint32]uint64 { return maps.Collect(r.Ring.Live()) }
func (r testedRing) State() ringtest.State   { return ringtest.State(r.Ring.State()) }
func (r testedRing) Bytes() []byte           { return r.buf }

// structure is the validator of the package, after each operation.
var structure = fuzz.Invariant[*ringtest.Step]{
	Name: "structure",
	Why:  "what holds between calls is what all of them start from",
	Holds: func(s *ringtest.Step) error {
		return s.Ring.(interface{ CheckStructure() error }).CheckStructure()
	},
}

// ringTests are the options of a Ring, and what holds for it.
var ringTests = map[string]struct {
	ring shmring.RingOptions
	test ringtest.Options
}{
	"as vLLM":                 {shmring.RingOptions{}, ringtest.Options{Placement: "0.33.0"}},
	"as vLLM, ids restart":    {shmring.RingOptions{IDsRestart: true}, ringtest.Options{Placement: "0.31.0", Off: []string{"ids-unique", "stale-handle", "stale-at-once"}}},
	"aligned to 8":            {shmring.RingOptions{Align: 8, DataOffset: 32}, ringtest.Options{FIFO: true}},
	"aligned to 16":           {shmring.RingOptions{Align: 16}, ringtest.Options{FIFO: true}},
	"aligned to 64, 32 ahead": {shmring.RingOptions{Align: 64, DataOffset: 32}, ringtest.Options{FIFO: true}},
}

func TestRingInvariants(t *testing.T) {
	for name, c := range ringTests {
		t.Run(name, func(t *testing.T) {
			c.test.StaleAtOnce, c.test.Also = true, []fuzz.Invariant[*ringtest.Step]{structure}
			ringtest.Check(t, newTestedRing(c.ring), c.test)
		})
	}
}

func TestRingMachine(t *testing.T) {
	rapid.Check(t, ringtest.Machine(newTestedRing(shmring.RingOptions{}), ringtest.Options{Placement: "0.33.0", StaleAtOnce: true}))
}

func FuzzRing(f *testing.F) {
	ringtest.Fuzz(f, newTestedRing(shmring.RingOptions{}), ringtest.Options{
		Placement: "0.33.0", StaleAtOnce: true, Also: []fuzz.Invariant[*ringtest.Step]{structure},
	})
}

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
				test.Size, test.Ops = size, 20_000
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

func TestRingExhaustively(t *testing.T) {
	for name, c := range ringTests {
		t.Run(name, func(t *testing.T) {
			c.test.StaleAtOnce = true
			if c.ring.Align >= 16 {
				c.test.Size = 5 * c.ring.Align // else there is room for one chunk
			}
			ringtest.Exhaust(t, newTestedRing(c.ring), c.test)
		})
	}
}

func TestPoolExhaustively(t *testing.T) {
	o := poolOptions()
	o.Size = 300
	ringtest.Exhaust(t, newTestedPool(shmring.PoolOptions{DataOffset: 32}), o)
}

func TestRingCrashes(t *testing.T) {
	for name, c := range ringTests {
		t.Run(name, func(t *testing.T) { ringtest.Crash(t, newTestedRing(c.ring), c.test, nil) })
	}
}
