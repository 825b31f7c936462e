package blake3

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
)

const (
	parallelLen = 1 << 20  // takes 250 µs alone; a helper must gain more than it costs to wake it
	pieceLen    = 32 << 10 // what a goroutine takes at a time
	batchLen    = 64 << 20 // what is handed to helpers at a time, which bounds the memory for nodes
)

var everyone crew

// batch is groups that several goroutines hash. They take pieces until none are left.
type batch struct {
	mode
	data  []byte
	first uint64 // the number of the first group
	nodes []node // of every group
	taken atomic.Int64
	left  sync.WaitGroup // pieces that are not hashed yet

	mu      sync.Mutex
	faulted []int // where pieces begin whose memory was not there
}

// work returns how many pieces it took. A fault would end the process, since a helper has not
// the caller's debug.SetPanicOnFault: so the pieces that fault are noted, for the caller.
func (b *batch) work() (pieces int) {
	for ; ; pieces++ {
		at := int(b.taken.Add(1)-1) * pieceLen
		if at >= len(b.data) {
			return pieces
		}
		if err := fault.Guard(func() error { b.piece(at); return nil }); err != nil {
			b.mu.Lock()
			b.faulted = append(b.faulted, at)
			b.mu.Unlock()
		}
		b.left.Done()
	}
}

// piece hashes the piece that begins at a place in the data.
func (b *batch) piece(at int) {
	for end := min(at+pieceLen, len(b.data)); at < end; at += groupLen {
		i := at / groupLen
		b.nodes[i] = b.group(b.data[at:], b.first+uint64(i))
	}
}

// addParallel is add with helpers. It reports false, with nothing done, when there are none.
func (t *tree) addParallel(data []byte, c *crew) bool {
	c.working.Add(1)
	defer c.working.Add(-1)
	pieces := (len(data) + pieceLen - 1) / pieceLen
	helpers := c.engage(pieces - 1)
	if helpers == 0 {
		return false
	}
	b := &batch{mode: t.mode, data: data, first: t.groups, nodes: make([]node, len(data)/groupLen)}
	b.left.Add(pieces)
	began := time.Now()
	for range helpers {
		// A helper that starts late finds no piece. It is not waited for, and doesn't touch data.
		go func() {
			defer c.working.Add(-1)
			b.work()
		}()
	}
	own := b.work()
	worked := time.Since(began)
	b.left.Wait()
	for _, at := range b.faulted {
		b.piece(at) // which faults again, here, unless the memory is back
	}
	// Alone it would have taken as long for every piece as for its own.
	c.learn(time.Since(began)*time.Duration(own) < worked*time.Duration(pieces))
	for _, n := range b.nodes {
		t.push(n)
	}
	return true
}
