package shmstore

import (
	"container/list"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/closing"
	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Store keeps payloads by key in a segment. There is one per segment.
//
// What holds between calls ([Store.CheckStructure]):
//   - objects has an entry for every chunk of the pool and no other;
//   - index and pending have an entry for every committed and every reserved
//     object, and no other; a key is in both only while an object that can't be
//     used once more is replaced;
//   - leases is the sum of those of the objects, and of those of the requests;
//   - an object is idle if it is committed or retired, has no lease and is neither
//     pinned nor in quarantine. Only idle objects are evicted, and a retired one
//     goes as soon as it is idle;
//   - quarantined has exactly the objects in quarantine, in the order of their
//     fences;
//   - bytes, idle and tenants are what counting all objects anew would give;
//   - no run of holes and idle objects is as long as a search that failed wanted,
//     see search;
//   - with a sidecar, every committed or retired object has an entry there, and
//     its use word is at least as cautious as the truth;
//   - waiters has everyone who is in a line.
type Store struct {
	opt     Options
	owner   PayloadOwner
	seg     *segment.Segment
	sidecar *sidecar.File // the sidecar; nil if the segment has none
	owns    bool          // created or adopted the segment, so removes it

	mu        sync.Mutex
	pool      *shmring.Pool
	objects   map[uint32]*Object
	index     map[string]*Object
	pending   map[string]*Object
	pinned    map[*Object]struct{}
	requests  map[string]*Request
	deadlines deadlines
	leases    int // of all requests
	kept      int // requests that keep the segment mapped
	readers   int
	misused   int // calls that end a request which was not committed
	state     closing.State

	markedIDs   uint32        // ids up to here are marked as given out
	quarantined list.List     // of *Object
	next        *list.Element // where look goes on, nil: at the front
	fence       uint64        // the next one's number
	dead        int           // readers whose slot was found without an owner

	evictor *evict.Policy
	room    int64 // bytes that chunks can take
	bytes   [classes]int64
	idle    idleSet
	sample  int // where cheapest goes on
	tenants map[string]*tenant
	search  search
	looked  int // objects looked at in search of room
	waiters line.Waiters
}

// Create makes a segment and the store in it. The errors are those of
// segment.Create.
func Create(o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	seg, err := segment.Create(o.Segment())
	if err != nil {
		return nil, err
	}
	s := newStore(seg, o)
	s.owns = true
	return s, nil
}

// New makes a store in a segment that the caller created, or made over private
// memory. Whatever was in it is forgotten, and the bytes in front (Options.DataOffset)
// are new and random. The store owns the segment from now on and closes it, but does
// not remove it.
func New(seg *segment.Segment, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(seg.Ring()) != o.Size || len(seg.Secret()) != o.DataOffset {
		return nil, fmt.Errorf("%w: %s has %d bytes, want %d (%d in front of %d)",
			segment.ErrSize, seg.Name(), len(seg.Bytes()), o.DataOffset+o.Size, o.DataOffset, o.Size)
	}
	if c := seg.Sidecar(); c != nil && (c.Options().Policy != sidecar.Pool || c.State().Epoch > 1 || c.State().Clean) {
		return nil, fmt.Errorf("%w: segment %s has a sidecar for the policy %v that was in use; adopt it", errInvalid, seg.Name(), c.Options().Policy)
	}
	s := newStore(seg, o)
	if err := s.guard(func() error { _, err := rand.Read(seg.Secret()); return err }); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(seg *segment.Segment, o Options) *Store {
	s := &Store{
		opt: o, owner: uncounted{}, seg: seg, sidecar: seg.Sidecar(), readers: o.Readers,
		pool:    shmring.NewPool(seg.Ring(), o.pool()),
		objects: map[uint32]*Object{}, index: map[string]*Object{}, pending: map[string]*Object{},
		pinned: map[*Object]struct{}{}, requests: map[string]*Request{}, tenants: map[string]*tenant{},
		evictor: evict.New(), markedIDs: o.FirstID, idle: idleSet{kind: idleOfStore},
	}
	s.room = int64(s.pool.Largest()) // nothing is in it yet
	s.waiters.Left = func(w *line.Waiter) { s.forgetTenant(w.Tenant) }
	if o.Payloads != nil {
		s.owner = o.Payloads(s)
	}
	return s
}

// guard makes a fault in f a [CorruptError].
func (s *Store) guard(f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return &CorruptError{Segment: s.seg.Name(), Err: s.seg.Explain(err)}
	}
	return err
}

// guardObject is guard for what is done to one object.
func (s *Store) guardObject(o *Object, f func() error) error {
	err := s.guard(f)
	if c, ok := err.(*CorruptError); ok {
		c.Address, c.ID = o.address, o.id
	}
	return err
}

// Name returns the name of the segment.
func (s *Store) Name() string { return s.seg.Name() }

// Segment returns the segment, for its bytes. It is the store's: only Close may close
// it.
func (s *Store) Segment() *segment.Segment { return s.seg }

// Len returns the number of chunks: objects, and reservations that are open or not
// freed yet.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pool.Len()
}

// lock takes the store's lock, and ends requests whose deadline has passed. It fails
// if the store is closed.
func (s *Store) lock() error {
	s.mu.Lock()
	if s.state.Closed {
		s.mu.Unlock()
		return s.closedError()
	}
	if len(s.deadlines) > 0 {
		s.expire(time.Now())
	}
	return nil
}

func (s *Store) closedError() error { return fmt.Errorf("%w: %s", errClosed, s.seg.Name()) }

// Handle returns where the payload of an object is.
func (s *Store) Handle(o *Object) Handle {
	from, n := s.payload(o)
	return Handle{Offset: uint64(s.opt.DataOffset) + o.address + shmring.HeaderSize + uint64(from), Length: uint64(n), ID: o.id}
}

// payload returns where in a chunk's bytes the payload begins, and its length. The
// payload that an owner lays out is the whole of it.
func (s *Store) payload(o *Object) (from, n int) {
	if s.opt.Payloads != nil {
		return 0, o.size - shmring.HeaderSize
	}
	from = plainLead - shmring.HeaderSize
	return from, o.descriptionOffset - from
}

// chunkBytes returns the bytes of a chunk behind its header. The caller is in a guard
// if it looks at them.
func (s *Store) chunkBytes(o *Object) []byte {
	from, to := o.address+shmring.HeaderSize, o.address+uint64(o.size)
	return s.seg.Ring()[from:to:to]
}

// Chunk returns the bytes of an object's chunk behind its header, for a PayloadOwner,
// which is called within the store's guard.
func (s *Store) Chunk(r Record) []byte { return s.chunkBytes(r.object()) }

// Cached reports whether a key is in the store. It changes nothing: the answer
// holds until the next Put of anyone, unless the key is pinned.
func (s *Store) Cached(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.index[key]
	return ok && !s.state.Closed && s.usable(o)
}

// usable reports whether an object can be given to one more request.
func (s *Store) usable(o *Object) (ok bool) {
	err := s.guard(func() error { ok = s.owner.Usable(o.record); return nil })
	return ok || err != nil
}

// find returns the object under a key that can be given to one more request.
func (s *Store) find(key string) (*Object, error) {
	o, ok := s.index[key]
	if ok && !s.usable(o) {
		s.retire(o)
		ok = false
	}
	if !ok {
		return nil, &KeyNotFoundError{key}
	}
	s.evictor.Hit(o.cached)
	s.releaseIfOver(o)
	return o, nil
}

// Find calls f with the record of the object under a key, and reports whether there is
// one. f is called under the store's lock, and must not call the Store.
func (s *Store) Find(key string, f func(Record)) (bool, error) {
	if err := s.lock(); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if ok && f != nil {
		f(o.record)
	}
	return ok, nil
}

// Remove makes a key absent, so that it can be put anew, and reports whether it was
// there. Handles that were given out can be read as before; the object goes once
// nobody can need it.
func (s *Store) Remove(key string) bool {
	if s.lock() != nil {
		return false
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if ok {
		s.retire(o)
	}
	return ok
}

// retire frees the key of an object, which itself stays until nobody can need it.
func (s *Store) retire(o *Object) {
	o.state = retired
	delete(s.index, o.key)
	s.unpin(o)
	s.watch(o, false)
	_ = s.changed(o) // if the sidecar is gone, it goes when room is needed
}

func (s *Store) forget(o *Object) {
	delete(s.objects, o.id)
	delete(s.pinned, o)
	if s.index[o.key] == o {
		delete(s.index, o.key)
		s.watch(o, false)
	}
}

func (s *Store) watch(o *Object, present bool) {
	if s.opt.Watch != nil {
		s.opt.Watch(Change{Key: o.key, ID: o.id, Present: present})
	}
}

// Pin keeps the object under a key, without a request, until Unpin or Clear, and
// reports whether it is there. A pin does not survive the process.
func (s *Store) Pin(key string) (bool, error) {
	if err := s.lock(); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	o, ok := s.index[key]
	if ok && !o.pinned {
		o.pinned = true
		s.pinned[o] = struct{}{}
		s.file(o, classOf(o))
	}
	return ok, nil
}

// Unpin ends the pin of a key, if it has one.
func (s *Store) Unpin(key string) {
	if s.lock() != nil {
		return
	}
	defer s.mu.Unlock()
	if o, ok := s.index[key]; ok {
		s.unpin(o)
	}
}

// UnpinAll ends every pin.
func (s *Store) UnpinAll() {
	if s.lock() != nil {
		return
	}
	defer s.mu.Unlock()
	for o := range s.pinned {
		s.unpin(o)
	}
}

func (s *Store) unpin(o *Object) {
	if o.pinned {
		o.pinned = false
		delete(s.pinned, o)
		s.file(o, classOf(o))
	}
}

// Clear makes every key absent, and frees what nobody can need. It fails with
// [segment.ErrBusy] while a reservation or a lease is open. Ids go on.
func (s *Store) Clear() error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		return fmt.Errorf("%w: %d reservations are open; commit or discard them before Clear", segment.ErrBusy, len(s.pending))
	}
	if s.leases > 0 {
		return fmt.Errorf("%w: %d leases are open; end their requests before Clear", segment.ErrBusy, s.leases)
	}
	return s.clear()
}
