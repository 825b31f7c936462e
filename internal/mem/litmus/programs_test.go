package litmus_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
)

const (
	payloadAt = 200 // in a chunk: another cache line than the id
	before    = 7   // what is in a payload
	after     = 9
)

// arenas returns two mappings of the memory of a program, and a pool over the first with a chunk for each
// cell.
func arenas(t *testing.T) (a, b arena, pool *shmring.Pool) {
	t.Helper()
	m, n := shared(t, arenaSize)
	a, b = newArena(m), newArena(n)
	return a, b, fill(t, a)
}

func fill(t *testing.T, a arena) *shmring.Pool {
	t.Helper()
	pool := shmring.NewPool(a.chunks, shmring.PoolOptions{})
	for c := range cells {
		at, i, _, err := pool.Alloc(stride - shmring.HeaderSize)
		require.NoError(t, err)
		require.Equal(t, address(c), at)
		require.Equal(t, id(c), i)
	}
	return pool
}

// publication is message passing: whoever finds the id of a chunk finds its payload. The writer is
// shmring.Pool, the reader shmring.ReadChunk.
func publication(a arena, pool *shmring.Pool) program {
	return program{
		name:    "publication: payload, then id; Pool.Publish, ReadChunk",
		prepare: func(c int) { pool.Kill(id(c)); le.PutUint64(a.chunk(c)[payloadAt:], 0) },
		left:    func(c int) { le.PutUint64(a.chunk(c)[payloadAt:], before); pool.Publish(id(c)) },
		forbidden: func(c int) bool {
			got, payload := a.seen(c)
			return got == id(c) && payload != before
		},
	}
}

func readPublished(b arena) func(c int) {
	return func(c int) {
		chunk, err := shmring.ReadChunk(b.chunks, address(c))
		if err != nil {
			chunk.ID = shmring.DeadID
		}
		b.see(c, chunk.ID, le.Uint64(chunk.Payload[payloadAt-shmring.HeaderSize:]))
	}
}

func TestPublication(t *testing.T) {
	a, b, pool := arenas(t)
	p := publication(a, pool)
	p.right = readPublished(b)
	p.test(t)
	p.name, p.control = "control: the same with a plain store of the id", true
	p.left = func(c int) { le.PutUint64(a.chunk(c)[payloadAt:], before); le.PutUint32(a.chunk(c), id(c)) }
	p.test(t)
}

// hold is store buffering, as in Dekker's algorithm: the writer takes the id away and looks for holds,
// the reader takes a hold and looks for the id. Not both may miss the other.
func hold(a arena, pool *shmring.Pool) program {
	var held [cells]uint32
	return program{
		name:    "hold: kill, look for holds; hold, look for the id; the words",
		prepare: func(c int) { pool.Publish(id(c)); mem.Store32(a.word(c), 0) },
		left:    func(c int) { pool.Kill(id(c)); held[c] = mem.Load32(a.word(c)) },
		forbidden: func(c int) bool {
			found, _ := a.seen(c)
			return found == id(c) && held[c] == 0
		},
	}
}

func takeHold(b arena) func(c int) {
	return func(c int) {
		mem.Store32(b.word(c), id(c)+1)
		mem.Fence()
		b.see(c, mem.Load32(b.chunk(c)), 0)
	}
}

// unfencedHold is hold with plain stores and loads.
func unfencedHold(a arena, pool *shmring.Pool) program {
	p := hold(a, pool)
	var held [cells]uint32
	p.name, p.control = "control: the same with plain stores and loads, no fences", true
	p.left = func(c int) { le.PutUint32(a.chunk(c), shmring.DeadID); held[c] = le.Uint32(a.word(c)) }
	p.forbidden = func(c int) bool {
		found, _ := a.seen(c)
		return found == id(c) && held[c] == 0
	}
	return p
}

func takeHoldUnfenced(b arena) func(c int) {
	return func(c int) {
		le.PutUint32(b.word(c), id(c)+1)
		b.see(c, le.Uint32(b.chunk(c)), 0)
	}
}

func TestHold(t *testing.T) {
	a, b, pool := arenas(t)
	p := hold(a, pool)
	p.right = takeHold(b)
	p.test(t)
	p = unfencedHold(a, pool)
	p.right = takeHoldUnfenced(b)
	p.test(t)
}

// TestSlots is TestHold with the real slots of a sidecar: Hold, Held, Release.
func TestSlots(t *testing.T) {
	side, err := sidecar.Private(sidecar.Options{Policy: sidecar.Pool, RingSize: cells * stride, Objects: cells,
		Slots: 1, Readers: 1})
	require.NoError(t, err)
	slot, err := side.TakeSlot(1)
	require.NoError(t, err)
	_, b, pool := arenas(t)
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
			pool.Publish(id(c))
		},
		left: func(c int) {
			pool.Kill(id(c))
			ids, _ := side.Held()
			_, held[c] = ids[id(c)]
		},
		right:     func(c int) { places[c], _ = slot.Hold(id(c)); found[c] = mem.Load32(b.chunk(c)) },
		forbidden: func(c int) bool { return found[c] == id(c) && !held[c] },
	}.test(t)
}

// TestReuse: a reader without a hold that finds the id before and after it read the payload has read the
// old payload, although the writer frees the chunk and uses it again meanwhile.
func TestReuse(t *testing.T) {
	a, b, pool := arenas(t)
	var first, second [cells]uint32
	var saw [cells]uint64
	program{
		name:    "reuse: Pool.Kill, new payload; read, look at the id again",
		prepare: func(c int) { pool.Publish(id(c)); le.PutUint64(a.chunk(c)[payloadAt:], before) },
		left:    func(c int) { pool.Kill(id(c)); le.PutUint64(a.chunk(c)[payloadAt:], after) },
		right: func(c int) {
			first[c] = mem.Load32(b.chunk(c))
			saw[c] = le.Uint64(b.chunk(c)[payloadAt:])
			mem.Fence()
			second[c] = mem.Load32(b.chunk(c))
		},
		forbidden: func(c int) bool { return first[c] == id(c) && second[c] == id(c) && saw[c] != before },
	}.test(t)

	// A ring, whose chunk was freed, destroys its id when it allocates there.
	rings := [cells]*shmring.Ring{}
	program{
		name: "reuse: Ring.Alloc over a freed chunk; read, look at the id again", slow: true,
		prepare: func(c int) {
			rings[c] = shmring.NewRing(a.chunk(c), shmring.RingOptions{})
			_, _, _, err := rings[c].Alloc(100)
			if err != nil {
				panic(err)
			}
			if _, _, _, err = rings[c].Alloc(100); err != nil { // at 108
				panic(err)
			}
			le.PutUint64(a.chunk(c)[150:], before)
			rings[c].Free(func(uint32, []byte) bool { return true }, stride)
		},
		left: func(c int) {
			_, _, payload, err := rings[c].Alloc(220) // at 0, over both
			if err == nil {
				le.PutUint64(payload[150-shmring.HeaderSize:], after)
			}
		},
		right: func(c int) {
			first[c] = mem.Load32(b.chunk(c)[108:])
			saw[c] = le.Uint64(b.chunk(c)[150:])
			mem.Fence()
			second[c] = mem.Load32(b.chunk(c)[108:])
		},
		forbidden: func(c int) bool { return first[c] == 1 && second[c] == 1 && saw[c] != before },
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
	p.name, p.control, p.left, p.right = "control: the same without the lock", true, increment(a, false),
		increment(b, false)
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
		{"word: not aligned, in one cache line", 9, mem.Load32, runtime.GOARCH != "amd64" || raceDetector},
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
	got := program{
		prepare:   func(c int) { n[c] = 0 },
		left:      func(c int) { mu.Lock(); n[c]++; mu.Unlock() },
		right:     func(c int) { mu.Lock(); n[c]++; mu.Unlock() },
		forbidden: func(c int) bool { return n[c] == 2 },
	}.run()
	require.NotZero(t, got.runs)
	require.Equal(t, got.runs, got.forbidden)
}
