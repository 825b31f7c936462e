package objstore

import (
	"bytes"
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// Writer puts objects into a segment. There is one per segment.
//
// What holds between calls ([Writer.CheckStructure]):
//   - objects has an entry for every live chunk of the ring and no other;
//   - index and pending have an entry for every committed and every reserved
//     object, and no other; a key is in both only while an object whose uses are
//     used up is replaced;
//   - touched holds ids of committed objects;
//   - leases is the sum of those of the objects;
//   - waiters has everyone who is in a line.
type Writer struct {
	opt     Options
	gen     pycompat.Generation
	sv      segmentView
	own     bool // created the segment, so removes it
	counter *counter

	mu       sync.Mutex
	space    space
	life     lifetimes
	readers  int
	objects  map[uint32]*object
	index    map[string]*object
	pending  map[string]*object
	touched  map[uint32]struct{}
	leases   int // open, of all objects
	requests map[string]*Request
	resets   int // of the readers
	misused  int // calls that end a request which was not committed
	closed   bool

	line      line // of those who wait for room
	waiters   map[*waiter]struct{}
	waitersOf map[string]map[*waiter]struct{} // of a key

	stopping bool          // Shutdown was called
	shut     bool          // Shutdown has closed the store
	drained  chan struct{} // closed when nothing is open; nil if nobody waits for that

	// Work that was done, for tests: objects looked at in search of room, waiters
	// woken, and tries of waiters that came by the timer.
	looked, woken, polls int
}

// object is what the writer knows of one chunk.
type object struct {
	key     string
	address uint64
	id      uint32
	size    int // of the chunk, with its header
	state   objectState
	uses    int64  // issued
	leases  int    // open
	sig     []byte // of its handle, computed once; nil in generations without
	tenant  string
	cost    float64 // of making it again, in nanoseconds
	note    []byte

	unsent int64 // uses of leases that were not sent
	sent   int   // leases that were

	ended chan struct{} // closed when the reservation ends; nil if nobody waits for that

	// Of the policy Pool.
	class               class
	extent              int64     // bytes that the chunk takes
	places              [bags]int // in the bags of idle objects
	search              uint64    // see search
	quarantined         *list.Element
	fence               uint64       // the one that ends the quarantine
	until               time.Time    // or then, if nobody is inside
	base                int64        // reads when it was last idle, -1 if that is not known
	written             int64        // reads that are missing and not needed any more; negative if too many were counted
	cached              *evict.Entry // nil but while it is committed
	entry               int          // in the sidecar, -1 if none
	noteOffset, noteLen int          // of key and note in the payload
	sum                 uint32       // of the payload
	fullSum             bool
}

type objectState uint8

const (
	reserved  objectState = iota // being written
	committed                    // has a key
	retired                      // committed, but its key means another object now
	discarded                    // free as soon as it is the oldest
)

// Create makes a segment and the store in it. The errors are those of
// shmring.Create.
func Create(o Options) (*Writer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if o.Name == "" {
		o.Name = o.Generation.SegmentName()
	}
	seg, err := shmring.Create(o.segment())
	if err != nil {
		return nil, err
	}
	w := newWriter(seg, o)
	w.own = true
	return w, nil
}

// NewWriter makes a store in a segment that the caller created, or made over
// private memory. Whatever was in it is forgotten, and where handles are signed a
// new secret makes the old ones invalid; elsewhere see Options.FirstID. The
// writer owns the segment from now on and closes it, but does not unlink it.
func NewWriter(seg *shmring.Segment, o Options) (*Writer, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := matches(seg, o.RingSize, o.Generation); err != nil {
		return nil, err
	}
	if c := seg.Control(); c != nil && (c.Options().Policy != o.Policy || c.State().Epoch > 1) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it", ErrInvalid, seg.Name(), c.Options().Policy)
	}
	w := newWriter(seg, o)
	return w, w.sv.guard(Handle{}, func() error {
		_, err := rand.Read(seg.Secret())
		return err
	})
}

func newWriter(seg *shmring.Segment, o Options) *Writer {
	g := o.Generation.OrNewest()
	o.Rereads = o.Rereads || g.Rereads && !o.TrustCounts
	w := &Writer{
		opt: o, gen: g, readers: o.Readers,
		sv:       segmentView{seg: seg, options: serde.Options{Generation: g, InlineThreshold: o.InlineThreshold}},
		counter:  newCounter(o.Lock, o.LockTimeout, o.Readers),
		objects:  map[uint32]*object{},
		index:    map[string]*object{},
		pending:  map[string]*object{},
		touched:  map[uint32]struct{}{},
		requests: map[string]*Request{}, waiters: map[*waiter]struct{}{}, waitersOf: map[string]map[*waiter]struct{}{},
	}
	switch o.Policy {
	case Pool:
		p := newPool(w, seg)
		w.life, w.space = p, p.mem
	default:
		p := &fifo{w, shmring.NewRing(seg.Ring(), o.ring())}
		w.life, w.space = p, p.ring
	}
	return w
}

// Name returns the name of the segment.
func (w *Writer) Name() string { return w.sv.seg.Name() }

// Segment returns the segment, for its bytes and its secret. It is the store's:
// only Close may close it.
func (w *Writer) Segment() *shmring.Segment { return w.sv.seg }

// Policy returns the policy of the store.
func (w *Writer) Policy() Policy { return w.opt.Policy }

// Generation returns the generation that the store is written in.
func (w *Writer) Generation() pycompat.Generation { return w.gen }

// Len returns the number of chunks: objects, and reservations that are open or
// were discarded and not freed yet.
func (w *Writer) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.space.Len()
}

// lock takes the writer's lock, or says that the writer is closed.
func (w *Writer) lock() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return w.closedError()
	}
	return nil
}

func (w *Writer) closedError() error { return fmt.Errorf("%w: %s", ErrClosed, w.sv.seg.Name()) }

// Cached reports whether a key is in the store. It changes nothing: the answer
// holds until the next Put of anyone, unless the key is touched.
func (w *Writer) Cached(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.index[key]
	return ok && !w.closed && w.canIssue(o)
}

// canIssue says whether one more use can be counted. Reads are an int32 in the
// segment: an object that was used 2^31 times could never become free, and a
// worker that counted on would fail. A pool starts the count again when an object
// is idle; one that never is ends here.
func (w *Writer) canIssue(o *object) bool {
	return w.canCount(o, 1) && (w.opt.Policy != Pool || w.reads(o.address) < rebaseAt)
}

func (w *Writer) canCount(o *object, uses int64) bool {
	return (o.uses+uses)*int64(w.readers) < math.MaxInt32
}

// needed returns the count of reads at which every handle of o is read.
func (w *Writer) needed(o *object) int64 { return o.uses*int64(w.readers) - o.written }

// Lookup returns a handle of the object under a key and issues one use of it:
// every reader has to get it once. It fails with [KeyNotFoundError].
func (w *Writer) Lookup(key string) (Handle, error) {
	if err := w.lockNew(); err != nil {
		return Handle{}, err
	}
	defer w.mu.Unlock()
	o, err := w.find(key)
	if err != nil {
		return Handle{}, err
	}
	return w.issueAnonymous(o)
}

// issueAnonymous issues a use that belongs to no lease.
func (w *Writer) issueAnonymous(o *object) (Handle, error) {
	o.uses++
	w.life.quarantine(o)
	if err := w.life.changed(o); err != nil {
		o.uses-- // what was put into quarantine for it stays there: that is the more cautious
		return Handle{}, err
	}
	return w.handle(o), nil
}

// find returns the object under a key that can be issued once more.
func (w *Writer) find(key string) (*object, error) {
	o, ok := w.index[key]
	if ok && !w.canIssue(o) {
		w.retire(o)
		ok = false
	}
	if !ok {
		return nil, &KeyNotFoundError{key}
	}
	w.untouch(o)
	w.life.hit(o)
	return o, nil
}

// Retire makes a key absent, so that it can be put anew, and reports whether it
// was there. Handles that were issued can be read as before; the object goes once
// they were.
func (w *Writer) Retire(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.index[key]
	if ok = ok && !w.closed; ok {
		w.retire(o)
	}
	return ok
}

// Evict makes the object under a key go at once if nobody can need it, and reports
// whether it did. It fails with [ErrInvalid] under FIFO, which frees only the
// oldest.
func (w *Writer) Evict(key string) (bool, error) {
	if err := w.lock(); err != nil {
		return false, err
	}
	defer w.mu.Unlock()
	p, ok := w.life.(*pool)
	if !ok {
		return false, fmt.Errorf("%w: with the policy FIFO only the oldest object can go, see FreeUnused", ErrInvalid)
	}
	o, ok := w.index[key]
	if !ok {
		return false, nil
	}
	if p.releaseIfOver(o); o.class != classIdle {
		return false, nil
	}
	err := w.sv.guard(Handle{}, func() error { ok = p.evict([]uint32{o.id}) == nil; return nil })
	return ok && err == nil, err
}

// retire frees the key of an object, which itself stays until its uses are read.
func (w *Writer) retire(o *object) {
	o.state = retired
	delete(w.index, o.key)
	w.untouch(o)
	w.watch(o, false)
	_ = w.life.changed(o) // if the sidecar is gone, it goes when room is needed
}

// untouch ends the protection of an object, if it has any.
func (w *Writer) untouch(o *object) {
	if _, ok := w.touched[o.id]; ok {
		delete(w.touched, o.id)
		w.life.touched(o)
	}
}

func (w *Writer) watch(o *object, present bool) {
	if w.opt.Watch != nil {
		w.opt.Watch(Change{Key: o.key, ID: o.id, Present: present})
	}
}

func (w *Writer) handle(o *object) Handle {
	return Handle{Address: o.address, ID: o.id, Signature: bytes.Clone(o.sig)}
}

// Touch says that the key will be looked up later in the same request, and must
// not be evicted before. What it does depends on the generation: before 0.12
// nothing; up to 0.31 it issues a use; from 0.32 on it protects the object until
// the next Lookup of it or ReleaseTouches, by anyone. An absent key is no error.
//
// As upstream, protection belongs to the store and not to a request, so it only
// holds for callers that make one request at a time.
//
// A writer with a lock touches as a reader does, see TouchHandle.
func (w *Writer) Touch(key string) error {
	if err := w.lock(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	o, ok := w.index[key]
	if !ok {
		return nil
	}
	switch w.gen.Counting {
	case pycompat.CountTouch:
		if w.canIssue(o) {
			_, err := w.issueAnonymous(o)
			return err
		}
	case pycompat.CountPerAddress:
		w.touched[o.id] = struct{}{}
		w.life.touched(o)
	}
	return nil
}

// TouchHandle is Touch for a writer that was given a lock: it does what
// [Reader.Touch] does, and verifies as [Writer.Verify] does.
func (w *Writer) TouchHandle(ctx context.Context, key string, h Handle) error {
	if w.counter == nil {
		return w.Touch(key)
	}
	if err := w.sv.seg.Hold(); err != nil {
		return err
	}
	defer w.sv.seg.Release()
	return touch(ctx, w.sv, w.gen, w.counter, h, func() error { return w.Verify(key, h) })
}

// ReleaseTouches ends the protection of every touched object, whoever touched it
// (vLLM 0.32 on).
func (w *Writer) ReleaseTouches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.touched {
		w.untouch(w.objects[id])
	}
}

// FreeUnused frees chunks, oldest first, whose uses were all read by every
// reader, until twice MaxObjectSize bytes were freed or one is still needed. It
// returns the ids. Put calls it when there is no room. With the policy Pool it
// evicts everything that nobody needs.
func (w *Writer) FreeUnused() ([]uint32, error) {
	if err := w.lock(); err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	return w.life.freeUnused()
}

func (w *Writer) forget(o *object) {
	delete(w.objects, o.id)
	delete(w.touched, o.id)
	if w.index[o.key] == o {
		delete(w.index, o.key)
		w.watch(o, false)
	}
}

// Clear forgets every object. Handles that are under way can be read until
// their place is used again, and fail then with [StaleError]; but where ids
// restart (see Options.KeepIDs) they can match a new object. It fails with
// [ErrBusy] while a reservation or a lease is open. With the policy Pool ids never
// restart, and what may still be read only loses its key.
func (w *Writer) Clear() error {
	if err := w.lock(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	if len(w.pending) > 0 {
		return fmt.Errorf("%w: %d reservations are open; commit or discard them before Clear", ErrBusy, len(w.pending))
	}
	if w.leases > 0 {
		return fmt.Errorf("%w: %d leases are open; release them before Clear", ErrBusy, w.leases)
	}
	return w.life.clear()
}

// Close unmaps the segment and, if Create or Adopt made the writer, removes it, as
// vLLM's writer does. It fails with [ErrBusy], and does nothing, while a
// reservation, a lease or a view is open: see [BusyError], [Writer.Shutdown] and
// [Writer.Abandon]. Closing twice is fine.
func (w *Writer) Close() error { return w.close(w.ending()) }

// ending is what Close does to the segment.
func (w *Writer) ending() func() error {
	if w.own {
		return w.sv.seg.Destroy
	}
	return w.sv.seg.Close
}

// Detach is Close, but leaves the segment as it is, so that another writer can
// adopt it: workers go on reading meanwhile.
func (w *Writer) Detach() error { return w.close(w.sv.seg.Detach) }

func (w *Writer) close(end func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	return w.finish(end)
}

// finish closes the store if nothing is open.
func (w *Writer) finish(end func() error) error {
	if w.leases > 0 {
		return w.busy(nil)
	}
	err := end()
	if errors.Is(err, ErrBusy) {
		return w.busy(nil)
	}
	w.markClosed() // whatever else went wrong, the memory is gone
	return err
}

// markClosed ends what is open and wakes whoever waits.
func (w *Writer) markClosed() {
	w.closed = true
	for _, r := range w.requests {
		r.state = requestEnded
	}
	clear(w.requests)
	w.wakeAll()
	w.wakeShutdown()
}
