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
	"github.com/ringcache/ringcache/shmstore"
)

// fifoStore is the store with vLLM's own rule, bit for bit: chunks are freed in the order of
// allocation, once the readers have counted every use that was given out. One request
// that is never read blocks everything behind it.
//
// What holds between calls ([fifoStore.CheckStructure]):
//   - objects has an entry for every live chunk of the ring and no other;
//   - index and pending have an entry for every committed and every reserved
//     object, and no other; a key is in both only while an object whose uses are
//     used up is replaced;
//   - touched has the committed objects that are touched;
//   - leases is the sum of those of the objects;
//   - waiters has everyone who is in the line.
type fifoStore struct {
	opt    Options
	chunks chunks
	owns   bool // created the segment, so removes it

	mu sync.Mutex
	counting
	ring *shmring.Ring
	fifoTable
	requests map[string]*fifoRequest
	leases   int // of all requests
	kept     int // requests that keep the segment mapped
	misused  int // calls that end a request which was not committed
	waiters  line.Waiters
	state    closing.State

	unnamed atomic.Uint64 // requests that steps.go has begun
}

// createFIFO makes a FIFO of options that were resolved.
func createFIFO(o Options) (*fifoStore, error) {
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
func takeFIFO(o Options) (*fifoStore, error) {
	seg := o.Segment
	if c := seg.Sidecar(); c != nil && (c.Options().Policy != sidecar.FIFO || c.State().Epoch > 1 || c.State().Clean) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it", errInvalid, seg.Name(), c.Options().Policy)
	}
	f := newFIFO(seg, o)
	if err := f.guard(func() error { _, err := rand.Read(seg.Secret()); return err }); err != nil {
		return nil, err
	}
	return f, nil
}

func newFIFO(seg *segment.Segment, o Options) *fifoStore {
	g := o.Generation
	return &fifoStore{
		opt: o, counting: newCounting(o.Readers, g),
		chunks:    chunks{seg: seg, options: serde.Options{Generation: g, InlineThreshold: o.InlineThreshold}},
		ring:      shmring.NewRing(seg.Ring(), o.ring()),
		fifoTable: newFIFOTable(), requests: map[string]*fifoRequest{},
	}
}

func (f *fifoStore) guard(g func() error) error { return f.chunks.guard(serde.Address{}, g) }

// Name implements [Store].
func (f *fifoStore) Name() string { return f.chunks.seg.Name() }

// Segment implements [Store].
func (f *fifoStore) Segment() *segment.Segment { return f.chunks.seg }

// lock takes the store's lock. It fails if the store is closed.
func (f *fifoStore) lock() error {
	f.mu.Lock()
	if f.state.Closed {
		f.mu.Unlock()
		return f.closedError()
	}
	return nil
}

func (f *fifoStore) closedError() error { return fmt.Errorf("%w: %s", errClosed, f.Name()) }

// Cached implements [Store].
func (f *fifoStore) Cached(key string) bool {
	if f.lock() != nil {
		return false
	}
	defer f.unlock()
	o, ok := f.index[key]
	return ok && f.canTake(o.counts, 1)
}

// Remove implements [Store].
func (f *fifoStore) Remove(key string) bool {
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

// Evict implements [Store].
func (f *fifoStore) Evict(string) (bool, error) {
	if err := f.lock(); err != nil {
		return false, err
	}
	defer f.unlock()
	return false, fmt.Errorf("%w: in a FIFO only the oldest object can go, once it was read", errInvalid)
}

// Fence implements [Store]: nothing waits for it.
func (f *fifoStore) Fence() shmstore.Fence { return shmstore.Fence{} }

// Verify implements [Store].
func (f *fifoStore) Verify(key string, h serde.Address) error { return verifyCurrent(f, key, h) }

// VerifyItem implements [Store].
func (f *fifoStore) VerifyItem(key string, it *serde.Item) error {
	return verifyItem(f, f.chunks, key, it)
}

// current returns the handle of the object under a key.
func (f *fifoStore) current(key string) (h serde.Address, ok bool, err error) {
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
