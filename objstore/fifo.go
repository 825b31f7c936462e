package objstore

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmring/sidecar"
)

// FIFO is the store with vLLM's own rule, bit for bit: chunks are freed in the order of
// allocation, once the readers have counted every use that was given out. One request
// that is never read blocks everything behind it. It implements [Store].
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
	opt     Options
	gen     *pycompat.Generation
	chunks  chunks
	counter *counter // nil unless Options.Lock
	owns    bool     // created the segment, so removes it

	mu sync.Mutex
	counting
	ring     *shmring.Ring
	objects  map[uint32]*fifoObject
	index    map[string]*fifoObject
	pending  map[string]*fifoObject
	touched  map[*fifoObject]struct{}
	requests map[string]*fifoRequest
	leases   int // of all requests
	kept     int // requests that keep the segment mapped
	misused  int // calls that end a request which was not committed
	waiters  line.Waiters
	state    closing.State

	unnamed atomic.Uint64 // requests that steps.go has begun
}

// CreateFIFO makes a segment and the store in it. The errors are those of
// segment.Create.
func CreateFIFO(o Options) (*FIFO, error) {
	o, err := o.resolveFIFO()
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = o.Generation.SegmentName()
	}
	seg, err := segment.Create(o.fifoSegment())
	if err != nil {
		return nil, err
	}
	f := newFIFO(seg, o)
	f.owns = true
	return f, nil
}

// NewFIFO makes a store in a segment that the caller created, or made over private
// memory; see [NewPool].
func NewFIFO(seg *segment.Segment, o Options) (*FIFO, error) {
	o, err := o.resolveFIFO()
	if err != nil {
		return nil, err
	}
	if err := matches(seg, o.RingSize, o.Generation); err != nil {
		return nil, err
	}
	if c := seg.Sidecar(); c != nil && (c.Options().Policy != sidecar.FIFO || c.State().Epoch > 1 || c.State().Clean) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it", ErrInvalid, seg.Name(), c.Options().Policy)
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
		opt: o, gen: g, counting: newCounting(o.Readers, g), counter: newCounter(o.Lock, o.LockTimeout, o.Readers),
		chunks:  chunks{seg: seg, options: serde.Options{Generation: g, InlineThreshold: o.InlineThreshold}},
		ring:    shmring.NewRing(seg.Ring(), o.ring()),
		objects: map[uint32]*fifoObject{}, index: map[string]*fifoObject{}, pending: map[string]*fifoObject{},
		touched: map[*fifoObject]struct{}{}, requests: map[string]*fifoRequest{},
	}
}

func (f *FIFO) guard(g func() error) error { return f.chunks.guard(Handle{}, g) }

// Name implements [Store].
func (f *FIFO) Name() string { return f.chunks.seg.Name() }

// Segment implements [Store].
func (f *FIFO) Segment() *segment.Segment { return f.chunks.seg }

// Generation implements [Store].
func (f *FIFO) Generation() *pycompat.Generation { return f.gen }

// lock takes the store's lock. It fails if the store is closed.
func (f *FIFO) lock() error {
	f.mu.Lock()
	if f.state.Closed {
		f.mu.Unlock()
		return f.closedError()
	}
	return nil
}

func (f *FIFO) closedError() error { return fmt.Errorf("%w: %s", ErrClosed, f.Name()) }

// Cached implements [Store].
func (f *FIFO) Cached(key string) bool {
	if f.lock() != nil {
		return false
	}
	defer f.mu.Unlock()
	o, ok := f.index[key]
	return ok && f.canTake(o.counts, 1)
}

// Remove implements [Store].
func (f *FIFO) Remove(key string) bool {
	if f.lock() != nil {
		return false
	}
	defer f.mu.Unlock()
	o, ok := f.index[key]
	if ok {
		f.retire(o)
	}
	return ok
}

// Verify implements [Store].
func (f *FIFO) Verify(key string, h Handle) error {
	if err := f.lock(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	o, ok := f.index[key]
	switch {
	case !ok || o.address != h.Address || o.id != h.ID:
		return &SignatureError{Key: key}
	case !f.gen.Signed:
		return nil
	}
	return o.signature.verify(key, h)
}
