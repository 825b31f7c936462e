package objstore

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// FIFO is the [Store] with vLLM's own rule, bit for bit: chunks are freed in the order of
// allocation, once the readers have counted every use that was given out. One request
// that is never read blocks everything behind it.
//
// What holds between calls ([FIFO.CheckStructure]):
//   - objects has an entry for every live chunk of the ring and no other;
//   - index and pending have an entry for every committed and every reserved
//     object, and no other; a key is in both only while an object whose uses are
//     used up is replaced;
//   - touched has the committed objects that are touched;
//   - leases is the sum of those of the objects;
//   - waiters has everyone who is in the line.
type FIFO struct {
	opt    Options
	chunks chunks
	owns   bool // created the segment, so removes it

	mu sync.Mutex
	counting
	ring *shmring.Ring
	fifoTable
	requests map[string]*fifoRequest
	leases   int // of all requests
	mapped   int // requests that keep the segment mapped
	misused  int // calls that end a request which was not committed
	waiters  line.Waiters
	state    closing.State

	unnamed atomic.Uint64 // requests that steps.go has begun
}

// CreateFIFO makes a FIFO. It makes a segment of its own, and removes it at its end, unless
// there is an Options.Segment. The errors are those of segment.Create.
func CreateFIFO(o Options) (*FIFO, error) {
	o, err := o.resolve()
	switch {
	case err != nil:
		return nil, err
	case o.Quota != 0 || o.Quotas != nil:
		return nil, fmt.Errorf("%w: a FIFO has no quotas; use a pool", errInvalid)
	}
	if o.Segment != nil {
		return takeFIFO(o)
	}
	seg, err := segment.Create(o.fifoSegment())
	if err != nil {
		return nil, err
	}
	f := newFIFO(seg, o)
	f.owns = true
	return f, nil
}

// takeFIFO makes a FIFO in a segment that the caller brings.
func takeFIFO(o Options) (*FIFO, error) {
	seg := o.Segment
	if c := sidecar.Of(seg); c != nil &&
		(c.Options().Policy != sidecar.FIFO || c.State().Epoch > 1 || c.State().Clean) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it",
			errInvalid, seg.Name(), c.Options().Policy)
	}
	f := newFIFO(seg, o)
	if err := f.guard(func() error { _, err := rand.Read(seg.Secret()); return err }); err != nil {
		return nil, err
	}
	return f, nil
}

func newFIFO(seg *segment.Segment, o Options) *FIFO {
	g := o.Generation
	return &FIFO{
		opt: o, counting: newCounting(o.Readers, g),
		chunks:    chunks{seg: seg, options: serde.Options{Generation: g, InlineThreshold: o.InlineThreshold}},
		ring:      shmring.NewRing(seg.Ring(), o.ring()),
		fifoTable: newFIFOTable(), requests: map[string]*fifoRequest{},
	}
}

func (f *FIFO) guard(g func() error) error { return f.chunks.guard(&serde.Address{}, g) }

// Name implements [Store].
func (f *FIFO) Name() string { return f.chunks.seg.Name() }

// Segment implements [Store].
func (f *FIFO) Segment() *segment.Segment { return f.chunks.seg }

// lock takes the store's lock. It fails if the store is closed.
func (f *FIFO) lock() error {
	f.mu.Lock()
	if f.state.Closed {
		f.mu.Unlock()
		return f.closedError()
	}
	return nil
}

func (f *FIFO) closedError() error { return fmt.Errorf("%w: %s", errClosed, f.Name()) }

// Cached implements [Store].
func (f *FIFO) Cached(key string) bool {
	if f.lock() != nil {
		return false
	}
	defer f.unlock()
	o, ok := f.index[key]
	return ok && f.canUse(o.counts, 1)
}

// Remove implements [Store].
func (f *FIFO) Remove(key string) bool {
	if f.lock() != nil {
		return false
	}
	defer f.unlock()
	o, ok := f.index[key]
	if ok {
		f.retire(o)
	}
	return ok
}

// Verify implements [Store].
func (f *FIFO) Verify(key string, h serde.Address) error { return verifyCurrent(f, key, h) }

// VerifyItem implements [Store].
func (f *FIFO) VerifyItem(key string, it *serde.Item) error {
	return verifyItem(f, &f.chunks, key, it)
}

// current returns the handle of the object under a key.
func (f *FIFO) current(key string) (h serde.Address, ok bool, err error) {
	if err := f.lock(); err != nil {
		return h, false, err
	}
	defer f.unlock()
	o, ok := f.index[key]
	if ok {
		h = f.handle(o)
	}
	return h, ok, nil
}
