package ringrules_test

import (
	"fmt"
	"log"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/fuzz/ringrules"
	"github.com/ringcache/ringcache/shmring"
)

// ring is the ring of this module, as the rules want it.
type ring struct {
	*shmring.Ring
	memory []byte
}

func (r ring) Alloc(size int) (uint64, uint32, error) {
	address, id, _, err := r.Ring.Alloc(size)
	return address, id, err
}

func (r ring) Free(ids []uint32) []uint32 {
	return r.Ring.Free(func(id uint32, _ []byte) bool { return slices.Contains(ids, id) }, r.Size())
}

func (r ring) Live() map[uint32]uint64 { return maps.Collect(r.Ring.Live()) }
func (r ring) State() ringrules.State  { return ringrules.State(r.Ring.State()) }
func (r ring) Bytes() []byte           { return r.memory }

// Every history of up to five operations on a ring of 40 bytes, in a program.
func Example() {
	plan, err := ringrules.NewPlan(func(size int, firstID uint32) ringrules.Ring {
		memory := make([]byte, size)
		return ring{shmring.NewRing(memory, shmring.RingOptions{FirstID: firstID}), memory}
	}, ringrules.Options{FIFO: true, Size: 40, Depth: 5, Payloads: []int{1, 8, 24}})
	if err != nil {
		log.Fatal(err)
	}
	histories, _, failure := plan.Exhaust()
	fmt.Println(histories, failure)
	// Output: 3296 <nil>
}
