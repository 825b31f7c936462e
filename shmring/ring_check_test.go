package shmring_test

import (
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
	"as vLLM":                 {shmring.RingOptions{}, ringtest.Options{Release: "0.33.0"}},
	"as vLLM, ids restart":    {shmring.RingOptions{IDsRestart: true}, ringtest.Options{Release: "0.31.0", Without: []string{"ids-unique", "stale-handle", "stale-at-once"}}},
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
	rapid.Check(t, ringtest.Machine(newTestedRing(shmring.RingOptions{}), ringtest.Options{Release: "0.33.0", StaleAtOnce: true}))
}

func FuzzRing(f *testing.F) {
	ringtest.Fuzz(f, newTestedRing(shmring.RingOptions{}), ringtest.Options{
		Release: "0.33.0", StaleAtOnce: true, Also: []fuzz.Invariant[*ringtest.Step]{structure},
	})
}

// The new chunk's payload ends on the first byte of a freed id, which the ring has flipped: a byte of
// the payload that flipped it back would be chance, and not the ring's.
func TestPayloadOverAPartOfAnID(t *testing.T) {
	ringtest.Replay(t, newTestedRing(shmring.RingOptions{}), ringtest.Options{Release: "0.33.0", StaleAtOnce: true}, `
		{"op":"ring.new","first_id":2147483642,"generation":"0.33.0","ring":"r","size":21}
		{"op":"ring.alloc","ring":"r","size":1}
		{"op":"ring.alloc","ring":"r","size":1}
		{"op":"ring.free","ids":[2147483642,2147483643],"ring":"r"}
		{"op":"ring.alloc","ring":"r","size":4}
		{"op":"ring.alloc","ring":"r","size":1}
		{"op":"ring.free","ids":[2147483644,2147483645],"ring":"r"}
		{"op":"ring.alloc","ring":"r","size":1}
		{"op":"ring.free","ids":[2147483646],"ring":"r"}
		{"op":"ring.alloc","ring":"r","size":5}`)
}

func TestRingExhaustively(t *testing.T) {
	for name, c := range ringTests {
		t.Run(name, func(t *testing.T) {
			c.test.StaleAtOnce, c.test.Depth = true, 5
			if c.ring.Align >= 16 {
				c.test.Size = 5 * c.ring.Align // else there is room for one chunk
			}
			ringtest.Exhaust(t, newTestedRing(c.ring), c.test)
		})
	}
}

func TestRingCrashes(t *testing.T) {
	for name, c := range ringTests {
		t.Run(name, func(t *testing.T) { ringtest.Crash(t, newTestedRing(c.ring), c.test, nil) })
	}
}
