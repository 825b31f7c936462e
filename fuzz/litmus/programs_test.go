package litmus_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

// plain accesses, as a program makes them that takes no care.
var le = binary.LittleEndian

// chunks returns two mappings of a pool with a chunk for each cell, its id, and where it is.
func chunks(t *testing.T) (a, b []byte, pool *shmring.Pool, id []uint32, at []int) {
	t.Helper()
	a, b = shared(t, cells*stride)
	pool = shmring.NewPool(a, shmring.PoolOptions{})
	for range cells {
		address, i, _, err := pool.Alloc(stride - shmring.HeaderSize)
		require.NoError(t, err)
		id, at = append(id, i), append(at, int(address))
	}
	return a, b, pool, id, at
}

// TestPublication is message passing: whoever finds the id of a chunk finds its payload. The writer is
// shmring.Pool, the reader shmring.ReadChunk, in two mappings.
func TestPublication(t *testing.T) {
	a, b, pool, id, at := chunks(t)
	var sawID [cells]bool
	var saw [cells]uint64
	p := program{
		name:    "publication: payload, then id; Pool.Publish, ReadChunk",
		prepare: func(c int) { pool.Kill(id[c]); le.PutUint64(a[at[c]+200:], 0) },
		left:    func(c int) { le.PutUint64(a[at[c]+200:], 7); pool.Publish(id[c]) },
		right: func(c int) {
			chunk, err := shmring.ReadChunk(b, uint64(at[c]))
			sawID[c] = err == nil && chunk.ID == id[c]
			saw[c] = le.Uint64(chunk.Payload[200-shmring.HeaderSize:])
		},
		forbidden: func(c int) bool { return sawID[c] && saw[c] != 7 },
	}
	p.test(t)
	p.name, p.control = "control: the same with a plain store of the id", true
	p.left = func(c int) { le.PutUint64(a[at[c]+200:], 7); le.PutUint32(a[at[c]:], id[c]) }
	p.test(t)
}

// TestHold is store buffering, as in Dekker's algorithm: the writer takes the id away and looks for holds,
// the reader takes a hold and looks for the id. Not both may miss the other.
func TestHold(t *testing.T) {
	a, b, pool, id, at := chunks(t)
	slots, slotsB := shared(t, cells*stride)
	var found, held [cells]uint32
	place := func(m []byte, c int) []byte { return m[c*stride : c*stride+4] }
	p := program{
		name:    "hold: kill, look for holds; hold, look for the id; the words",
		prepare: func(c int) { pool.Publish(id[c]); mem.Store32(place(slots, c), 0) },
		left:    func(c int) { pool.Kill(id[c]); held[c] = mem.Load32(place(slots, c)) },
		right: func(c int) {
			mem.Store32(place(slotsB, c), id[c]+1)
			mem.Fence()
			found[c] = mem.Load32(b[at[c]:])
		},
		forbidden: func(c int) bool { return found[c] == id[c] && held[c] == 0 },
	}
	p.test(t)
	p.name, p.control = "control: the same with plain stores and no fences", true
	p.left = func(c int) { le.PutUint32(a[at[c]:], shmring.DeadID); held[c] = le.Uint32(place(slots, c)) }
	p.right = func(c int) { le.PutUint32(place(slotsB, c), id[c]+1); found[c] = le.Uint32(b[at[c]:]) }
	p.test(t)
}

// TestSlots is TestHold with the real slots of a sidecar: Hold, Held, Release.
func TestSlots(t *testing.T) {
	side, err := sidecar.Private(sidecar.Options{Policy: sidecar.Pool, RingSize: cells * stride, Objects: cells, Slots: 1, Readers: 1})
	require.NoError(t, err)
	slot, err := side.TakeSlot(1)
	require.NoError(t, err)
	_, b, pool, id, at := chunks(t)
	var found [cells]uint32
	var places [cells]int
	var held [cells]bool
	for c := range places {
		places[c] = -1
	}
	program{
		name: "hold: the same with sidecar.Slot.Hold and File.Held", slow: true,
		prepare: func(c int) {
			if places[c] >= 0 {
				slot.Release(places[c])
			}
			pool.Publish(id[c])
		},
		left: func(c int) {
			pool.Kill(id[c])
			ids, _ := side.Held()
			_, held[c] = ids[id[c]]
		},
		right:     func(c int) { places[c], _ = slot.Hold(id[c]); found[c] = mem.Load32(b[at[c]:]) },
		forbidden: func(c int) bool { return found[c] == id[c] && !held[c] },
	}.test(t)
}

// TestReuse: a reader without a hold that finds the id before and after it read the payload has read the
// old payload, although the writer frees the chunk and uses it again meanwhile.
func TestReuse(t *testing.T) {
	a, b, pool, id, at := chunks(t)
	var first, second [cells]uint32
	var saw [cells]uint64
	program{
		name:    "reuse: Pool.Kill, new payload; read, look at the id again",
		prepare: func(c int) { pool.Publish(id[c]); le.PutUint64(a[at[c]+200:], 7) },
		left:    func(c int) { pool.Kill(id[c]); le.PutUint64(a[at[c]+200:], 9) },
		right: func(c int) {
			first[c] = mem.Load32(b[at[c]:])
			saw[c] = le.Uint64(b[at[c]+200:])
			mem.Fence()
			second[c] = mem.Load32(b[at[c]:])
		},
		forbidden: func(c int) bool { return first[c] == id[c] && second[c] == id[c] && saw[c] != 7 },
	}.test(t)

	// A ring, whose chunk was freed, destroys its id when it allocates there.
	rings := [cells]*shmring.Ring{}
	program{
		name: "reuse: Ring.Alloc over a freed chunk; read, look at the id again", slow: true,
		prepare: func(c int) {
			rings[c] = shmring.NewRing(a[c*stride:(c+1)*stride], shmring.RingOptions{})
			_, _, _, err := rings[c].Alloc(100)
			if err != nil {
				panic(err)
			}
			_, second[c], _, _ = rings[c].Alloc(100) // at 108
			le.PutUint64(a[c*stride+150:], 7)
			rings[c].Free(func(uint32, []byte) bool { return true }, stride)
		},
		left: func(c int) {
			_, _, payload, err := rings[c].Alloc(220) // at 0, over both
			if err == nil {
				le.PutUint64(payload[150-shmring.HeaderSize:], 9)
			}
		},
		right: func(c int) {
			first[c] = mem.Load32(b[c*stride+108:])
			saw[c] = le.Uint64(b[c*stride+150:])
			mem.Fence()
			second[c] = mem.Load32(b[c*stride+108:])
		},
		forbidden: func(c int) bool { return first[c] == 1 && second[c] == 1 && saw[c] != 7 },
	}.test(t)
}

// TestCount: no read that is counted under the lock of a sidecar is lost, at any alignment.
func TestCount(t *testing.T) {
	a, b := shared(t, cells*stride)
	side, err := sidecar.Private(sidecar.Options{Policy: sidecar.FIFO, RingSize: cells * stride, Slots: 1, Readers: 1})
	require.NoError(t, err)
	word := func(m []byte, c int) []byte { return m[c*stride+c%64:] } // some lie across the end of a cache line
	increment := func(m []byte, lock bool) func(c int) {
		return func(c int) {
			if lock {
				if side.Lock(context.Background()) != nil {
					panic("lock")
				}
				defer func() { _ = side.Unlock() }()
			}
			mem.Store32(word(m, c), mem.LoadStable32(word(m, c))+1)
		}
	}
	p := program{
		name: "count: load, store + 1 under sidecar.File.Lock, any alignment", slow: true,
		prepare: func(c int) { mem.Store32(word(a, c), 0) },
		left:    increment(a, true), right: increment(b, true),
		forbidden: func(c int) bool { return mem.Load32(word(a, c)) != 2 },
	}
	p.test(t)
	p.name, p.control, p.left, p.right = "control: the same without the lock", true, increment(a, false), increment(b, false)
	p.test(t)
}

// TestTornWords: an aligned word is seen before or after a store, never in between. One that is not aligned
// may be torn where it lies across cache lines, and on some processors anywhere.
func TestTornWords(t *testing.T) {
	a, b := shared(t, cells*stride)
	var saw [cells]uint32
	for _, c := range []struct {
		name    string
		offset  int
		load    func([]byte) uint32
		control bool
	}{
		{"word: aligned, Store32 and Load32", 8, mem.Load32, false},
		{"word: not aligned, in one cache line", 9, mem.Load32, runtime.GOARCH != "amd64"},
		{"word: across cache lines, Load32", 62, mem.Load32, true},
		{"word: across cache lines, LoadStable32", 62, mem.LoadStable32, true},
	} {
		program{
			name:      c.name,
			prepare:   func(cell int) { mem.Store32(a[cell*stride+c.offset:], 0) },
			left:      func(cell int) { mem.Store32(a[cell*stride+c.offset:], 0xffffffff) },
			right:     func(cell int) { saw[cell] = c.load(b[cell*stride+c.offset:]) },
			forbidden: func(cell int) bool { return saw[cell] != 0 && saw[cell] != 0xffffffff },
			control:   c.control,
		}.test(t)
	}
}

// TestTheCheckCanFail: a program that is wrong at any order of memory has forbidden outcomes, on any machine.
func TestTheCheckCanFail(t *testing.T) {
	var mu sync.Mutex
	var n [cells]int
	_, _, got := program{
		prepare:   func(c int) { n[c] = 0 },
		left:      func(c int) { mu.Lock(); n[c]++; mu.Unlock() },
		right:     func(c int) { mu.Lock(); n[c]++; mu.Unlock() },
		forbidden: func(c int) bool { return n[c] == 2 },
	}.run(2)
	require.Equal(t, 2*cells, got)
}
