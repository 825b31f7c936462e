package blake3

import (
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	parallelLen = 512 << 10 // below, a helper is not awake before the caller is done
	pieceLen    = 64 << 10  // what a goroutine takes at a time
	batchLen    = 64 << 20  // what is handed to helpers at a time, which bounds the memory for nodes
)

// working is how many goroutines of the process hash long writes: callers, and helpers from before they start. It is
// one number for the process, as GOMAXPROCS is.
var working atomic.Int64

// engage counts up to n helpers as working, as many as there are processors for.
func engage(n int) int {
	for {
		now := working.Load()
		n = min(n, runtime.GOMAXPROCS(0)-int(now))
		if n <= 0 {
			return 0
		}
		if working.CompareAndSwap(now, now+int64(n)) {
			return n
		}
	}
}

// batch is groups that several goroutines hash. They take pieces until none are left.
type batch struct {
	mode
	data  []byte
	first uint64 // the number of the first group
	nodes []node // of every group
	taken atomic.Int64
	left  sync.WaitGroup // pieces that are not hashed yet
}

func (b *batch) work() {
	for {
		at := int(b.taken.Add(1)-1) * pieceLen
		if at >= len(b.data) {
			return
		}
		for end := min(at+pieceLen, len(b.data)); at < end; at += groupLen {
			i := at / groupLen
			b.nodes[i] = b.group(b.data[at:], b.first+uint64(i))
		}
		b.left.Done()
	}
}

// addParallel is add with helpers. It reports false, with nothing done, when no processor is free.
func (t *tree) addParallel(p []byte) bool {
	working.Add(1)
	defer working.Add(-1)
	for begun := false; len(p) > 0; begun = true {
		data := p[:min(len(p), batchLen)]
		pieces := (len(data) + pieceLen - 1) / pieceLen
		helpers := engage(pieces - 1)
		if helpers == 0 && !begun {
			return false
		}
		t.addBatch(data, pieces, helpers)
		p = p[len(data):]
	}
	return true
}

func (t *tree) addBatch(data []byte, pieces, helpers int) {
	b := &batch{mode: t.mode, data: data, first: t.groups, nodes: make([]node, len(data)/groupLen)}
	b.left.Add(pieces)
	for range helpers {
		// A helper that starts late finds no piece. It is not waited for, and data is not touched by it.
		go func() {
			defer working.Add(-1)
			b.work()
		}()
	}
	b.work()
	b.left.Wait()
	for _, n := range b.nodes {
		t.push(n)
	}
}
