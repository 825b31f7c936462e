package objstore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
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

// fifoObject is what a FIFO keeps of one chunk.
type fifoObject struct {
	key     string
	address uint64
	id      uint32
	size    int // of the chunk, with its header
	state   fifoState
	note    []byte
	counts
	leases    int // of requests that have not ended
	sent      int // of them, of requests that were committed
	touched   bool
	signature signature
}

type fifoState uint8

const (
	fifoReserved  fifoState = iota // being written
	fifoCommitted                  // has its key
	fifoRetired                    // committed, but its key means another object now, or none
	fifoDiscarded                  // free as soon as it is the oldest
)

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

// needed returns the count of reads at which every handle of an object is read.
func (f *FIFO) needed(o *fifoObject) int64 { return o.uses * int64(f.readers) }

// find returns the object under a key that can be used once more.
func (f *FIFO) find(key string) (*fifoObject, error) {
	o, ok := f.index[key]
	if ok && !f.canTake(o.counts, 1) {
		f.retire(o)
		ok = false
	}
	if !ok {
		return nil, &shmstore.KeyError{Key: key, Err: ErrNotFound}
	}
	return o, nil
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

// retire frees the key of an object, which itself stays until its uses are read.
func (f *FIFO) retire(o *fifoObject) {
	o.state = fifoRetired
	delete(f.index, o.key)
	f.untouch(o)
	f.watch(o, false)
	f.wakeFirst()
}

func (f *FIFO) untouch(o *fifoObject) {
	if o.touched {
		o.touched = false
		delete(f.touched, o)
		f.wakeFirst()
	}
}

func (f *FIFO) watch(o *fifoObject, present bool) {
	if f.opt.Watch != nil {
		f.opt.Watch(Change{Key: o.key, ID: o.id, Present: present})
	}
}

func (f *FIFO) handle(o *fifoObject) Handle {
	h := Handle{Address: o.address, ID: o.id}
	if f.gen.Signed {
		h.Signature = bytes.Clone(o.signature[:])
	}
	return h
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

// allocate takes a chunk, once more after freeing what it can.
func (f *FIFO) allocate(size int, as line.Turn) (address uint64, id uint32, payload []byte, err error) {
	first, room := &f.waiters.Main, int64(f.opt.RingSize)
	need := fifoExtent(size)
	if as == line.Passing && need <= room && !first.MayPass(need, room) {
		return 0, 0, nil, f.headError(int(need))
	}
	try := func() error {
		return f.guard(func() (err error) {
			address, id, payload, err = f.ring.Alloc(size)
			return err
		})
	}
	// Also when it can never fit: upstream makes no difference, and frees.
	if err = try(); errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge) {
		if _, err = f.freeUnused(); err == nil {
			err = try()
		}
	}
	var full *shmring.FullError
	var never *shmring.TooLargeError
	switch {
	case errors.As(err, &full):
		err = f.headError(full.Need)
	case errors.As(err, &never):
		limit := never.Limit - shmring.HeaderSize
		err = &shmstore.TooLargeError{Size: size, Limit: limit, Ring: never.Limit < shmring.MaxChunk, Format: never.Limit == shmring.MaxChunk}
	case err == nil && as == line.Passing:
		first.Passed(need)
	}
	return address, id, payload, err
}

// fifoExtent returns the bytes of a chunk with such a payload.
func fifoExtent(size int) int64 { return int64(size) + shmring.HeaderSize }

// freeUnused frees chunks, oldest first, whose uses were all read by every reader,
// until twice MaxObjectSize bytes were freed or one is still needed. It returns the ids.
func (f *FIFO) freeUnused() ([]uint32, error) {
	var fault error
	free := func(id uint32, payload []byte) (ok bool) {
		// Guarded one by one: chunks that were freed before a fault are freed.
		fault = f.chunks.guard(Handle{ID: id}, func() error { ok = f.isFree(id, payload); return nil })
		return ok && fault == nil
	}
	// A limit of twice the ring frees everything, and can't overflow.
	limit := min(f.opt.MaxObjectSize, f.opt.RingSize, math.MaxInt/2)
	freed := f.ring.Free(free, 2*limit)
	for _, id := range freed {
		f.forget(f.objects[id])
	}
	if first := f.waiters.Main.First(); first != nil && len(freed) > 0 {
		f.waiters.Wake(first)
	}
	return freed, fault
}

func (f *FIFO) forget(o *fifoObject) {
	delete(f.objects, o.id)
	delete(f.touched, o)
	if f.index[o.key] == o {
		delete(f.index, o.key)
		f.watch(o, false)
	}
}

func (f *FIFO) isFree(id uint32, payload []byte) bool {
	o := f.objects[id]
	switch {
	case o.state == fifoDiscarded:
		return true
	case o.state == fifoReserved, o.touched, o.leases > 0:
		return false
	}
	return readCount(payload) >= f.needed(o)
}

// wakeFirst wakes the first one that waits, if the oldest chunk can be freed.
func (f *FIFO) wakeFirst() {
	first := f.waiters.Main.First()
	if first == nil {
		return
	}
	ok := true
	for id, address := range f.ring.Live() {
		_ = f.guard(func() error {
			c, err := shmring.ReadChunk(f.chunks.seg.Ring(), address)
			ok = err == nil && f.isFree(id, c.Payload)
			return err
		})
		break
	}
	if ok {
		f.waiters.Wake(first)
	}
}

// reads is the read count of an object as it is now, 0 if it can't be read.
func (f *FIFO) reads(o *fifoObject) (n int64) {
	_ = f.guard(func() error {
		if c, err := shmring.ReadChunk(f.chunks.seg.Ring(), o.address); err == nil && len(c.Payload) >= countSize {
			n = readCount(c.Payload)
		}
		return nil
	})
	return n
}

// headError describes the oldest chunk of a ring that is not empty.
func (f *FIFO) headError(need int) error {
	e := &HeadError{Need: need, Used: f.ring.Used(), Size: f.ring.Size(), Waiting: f.waiters.Main.Wanted()}
	for id := range f.ring.Live() {
		o := f.objects[id]
		e.Head = HeadState{
			Key: o.key, ID: id, Reserved: o.state == fifoReserved, Protected: o.touched, Leases: o.leases,
			Uses: o.uses, Readers: f.readers,
		}
		if !e.Head.Reserved { // else its count is just being written
			e.Head.Reads = f.reads(o)
		}
		break
	}
	return e
}

// Clear implements [Store]. Handles that are under way can be read until their place is
// used again, and fail then with [StaleError]; but where ids restart (see
// Options.KeepIDs) they can match a new object.
func (f *FIFO) Clear() error {
	if err := f.lock(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if len(f.pending) > 0 {
		return fmt.Errorf("%w: %d reservations are open; commit or discard them before Clear", ErrBusy, len(f.pending))
	}
	if f.leases > 0 {
		return fmt.Errorf("%w: %d leases are open; end their requests before Clear", ErrBusy, f.leases)
	}
	for _, o := range f.index {
		f.watch(o, false)
	}
	f.ring.Clear()
	clear(f.objects)
	clear(f.index)
	clear(f.touched)
	f.wakeFirst()
	return nil
}

// ResetReaders implements [Store].
func (f *FIFO) ResetReaders(readers int) error { return resetReaders(f.opt, f.resetReaders, readers) }

func (f *FIFO) resetReaders(readers int) error {
	if err := f.lock(); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if readers == 0 {
		readers = f.readers
	}
	if c := f.chunks.seg.Sidecar(); c != nil { // first: if it is gone, nothing is reset
		err := f.guard(func() error {
			s := c.State()
			s.Readers = readers
			c.SetState(s)
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.readers = readers
	for _, r := range f.requests {
		if r.state == requestCommitted {
			r.become(requestEnded)
			r.leases = nil
		}
	}
	for _, o := range f.objects {
		if o.state == fifoReserved || o.state == fifoDiscarded {
			continue
		}
		o.leases -= o.sent
		f.leases -= o.sent
		o.sent = 0
		o.counts.reset()
		_ = f.guard(func() error {
			c, err := shmring.ReadChunk(f.chunks.seg.Ring(), o.address)
			if err == nil && len(c.Payload) >= countSize {
				mem.Store32(c.Payload, 0)
			}
			return err
		})
	}
	f.wakeFirst()
	f.wakeShutdown()
	return nil
}
