package mmcache

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"sync/atomic"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmstore"
)

// Shared is a [Cache] of mode shm, which keeps items in shared memory, with their
// prompt updates. Each request and each hold is one objstore.Request, so that the rules of what was
// sent, what is taken back and what an abort leaves behind are written once, in the store.
type Shared struct {
	*cache
	// Adoption is what OpenShared found in a segment that it took over; zero if it made
	// a new one.
	Adoption shmstore.Adoption

	store objstore.Store
	pool  *objstore.Pool // the store, nil if it is a FIFO
	begun atomic.Uint64  // transactions whose id was taken
}

// OpenShared opens a cache of mode shm: it creates the segment, which the workers
// attach to when they start, and which Close removes; or it adopts one
// (SharedOptions.Adopt). Options.Mode is not looked at. The errors are those of
// objstore.CreatePool, objstore.CreateFIFO and objstore.AdoptPool.
func OpenShared(o Options) (*Shared, error) {
	o.Mode = modeSHM
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Shared{cache: newCache(o)}
	s.backend = s
	so := o.store()
	so.Watch = func(c shmstore.Change) {
		kind := eventEvicted
		if c.Present {
			kind = eventAdded
		}
		s.events.emit(Event{Kind: kind, Key: c.Key})
	}
	if o.Shared.FIFO {
		s.store, err = objstore.CreateFIFO(so)
	} else {
		s.pool, err = s.openPool(o.Shared.Adopt, so)
		s.store = s.pool
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openPool adopts a pool, or makes one if there is none to adopt.
func (s *Shared) openPool(adopt bool, o objstore.Options) (p *objstore.Pool, err error) {
	if adopt {
		if p, s.Adoption, err = objstore.AdoptPool(o); !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	return objstore.CreatePool(o)
}

// Name returns the name of the segment, which the engine needs
// (pycompat.SegmentEnv).
func (s *Shared) Name() string { return s.store.Name() }

// Prepare maps the pages ahead, and asks for huge pages, NUMA nodes and locked
// memory; the report lists what was obtained. See segment.Segment.Prepare.
func (s *Shared) Prepare(ctx context.Context, o memory.Options) (memory.Report, error) {
	return s.store.Segment().Prepare(ctx, o)
}

// Fence marks a moment in the order of what was sent, see objstore.Pool:
// take it, send a call that every worker executes behind everything sent before,
// and call Passed when all have answered. Aborted requests keep their items until
// then. In a FIFO they wait for their counts, and a fence proves nothing.
func (s *Shared) Fence() shmstore.Fence {
	if s.pool == nil {
		return shmstore.Fence{}
	}
	return s.pool.Fence()
}

// State returns what the store keeps of every object, with the counts that are in
// the segment now.
func (s *Shared) State() (objstore.State, error) {
	st, err := s.store.State()
	return st, closedError(err)
}

// ResetReaders is called when the engine was restarted, with so many readers (0: as
// many as before), see objstore.Store.ResetReaders: the items stay, and requests
// that were committed to the old engine need none of them any more.
func (s *Shared) ResetReaders(readers int) error {
	return closedError(s.store.ResetReaders(readers))
}

// Detach is Close, but leaves the segment with its items for the next process
// (SharedOptions.Adopt).
func (s *Shared) Detach() error { return s.closeNow(s.store.Detach) }

// begin starts a request of the store. A request that has ended here stays open there
// while one of its items is still being made: then its id is taken, and the new one is
// made unique.
func (s *Shared) begin(t *transaction, id string) (err error) {
	t.stored, err = s.store.Begin(id)
	for errors.Is(err, fs.ErrInvalid) {
		t.stored, err = s.store.Begin(id + "#" + strconv.FormatUint(s.begun.Add(1), 10))
	}
	return closedError(err)
}

func (s *Shared) invalidate(key string) bool { return s.store.Remove(key) }

func (s *Shared) clear(_ context.Context, send func(lrusync.Envelope) error) error {
	if err := send(lrusync.Envelope{}); err != nil {
		return err
	}
	if err := s.store.Clear(); err != nil {
		return closedError(err)
	}
	s.cleared()
	return nil
}

func (s *Shared) contents() (all []lrusync.KeySize) {
	st, err := s.store.State()
	if err != nil {
		return nil
	}
	for _, o := range st.Objects {
		if o.Indexed {
			all = append(all, lrusync.KeySize{Key: o.Key, Size: o.Bytes})
		}
	}
	return all
}

func (s *Shared) measure() (items, bytes, quarantined int64) {
	st, err := s.store.Stats()
	if err != nil { // closed
		return 0, 0, 0
	}
	return int64(st.Objects), st.Used, int64(st.QuarantinedObjects)
}

func (s *Shared) check() error { return s.store.CheckStructure() }

func (s *Shared) close() error { return s.store.Close() }

func (s *Shared) shutdown(ctx context.Context) error { return s.store.Shutdown(ctx) }

func (s *Shared) abandon() error { return s.store.Abandon() }
