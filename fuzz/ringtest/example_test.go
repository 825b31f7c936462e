package ringtest_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/fuzz/ringtest"
)

// bump is an allocator that begins anew when everything was freed. Its bug: a chunk takes no room for its header.
type bump struct {
	memory []byte
	end    int
	next   uint32 // id
	live   map[uint32]uint64
}

func (b *bump) Alloc(size int) (uint64, uint32, error) {
	if size <= 0 || size > len(b.memory)-b.end-8 {
		return 0, 0, errors.New("no room")
	}
	at, id := b.end, b.next
	binary.LittleEndian.PutUint32(b.memory[at:], id)
	binary.LittleEndian.PutUint32(b.memory[at+4:], uint32(size+8))
	b.end += size // here 8 are missing
	b.next++
	b.live[id] = uint64(at)
	return uint64(at), id, nil
}

func (b *bump) Free(ids []uint32) (freed []uint32) {
	for _, id := range ids {
		if _, ok := b.live[id]; ok {
			delete(b.live, id)
			freed = append(freed, id)
		}
	}
	if len(b.live) == 0 {
		b.end = 0
	}
	return freed
}

func (b *bump) Live() map[uint32]uint64 { return b.live }
func (b *bump) State() ringtest.State   { return ringtest.State{IDStart: b.next, IDEnd: b.next} }
func (b *bump) Bytes() []byte           { return b.memory }

// What Check would print of a ring with a bug, and the operations that show it.
func ExampleFind() {
	failure, _, err := ringtest.Find(func(size int, firstID uint32) ringtest.Ring {
		return &bump{memory: make([]byte, size), next: firstID, live: map[uint32]uint64{}}
	}, ringtest.Options{Without: []string{"id-window"}, Seed: 1})
	if err != nil {
		panic(err)
	}
	fmt.Println(failure.Invariant, "is broken by", len(failure.Ops), "operations")
	// Output: no-overlap is broken by 3 operations
}
