package shmstore

import (
	"errors"
	"fmt"
	"sync"

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
//   - every chunk of the pool has an object as its owner;
//   - index and pending have an entry for every committed and every reserved
//     object, and no other; a key is in both only while an object that can't be
//     used once more is replaced;
//   - leases is the sum of those of the objects, and of those of the requests;
//   - an object is idle if it is committed or retired, has no lease, is neither
//     pinned nor in quarantine, and has no children. Only idle objects are evicted, and a
//     retired one goes as soon as it is idle;
//   - families has every object that is committed or reserved and has a parent, and no ring;
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

	mu        sync.Mutex // guards all below
	state     closing.State
	pool      *shmring.Pool
	markedIDs uint32 // ids up to here are marked as given out
	readers   int

	index   map[string]*Object
	pending map[string]*Object
	pinned  map[*Object]struct{}

	resumable map[uint32]*Object // reservations of the dead writer that nobody has resumed

	requests map[string]*Request
	leases   int // of all requests
	kept     int // requests that keep the segment mapped

	quarantined quarantine
	evictor     *evict.Policy
	ledger
	waiters line.Waiters
	counts  struct {
		misused int // calls that end a request which was not committed
		dead    int // readers whose slot was found without an owner
		looked  int // objects looked at in search of room
		evicted int // objects that went for it
	}
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
		c.Address, c.ID = o.chunk.Address, o.chunk.ID
	}
	return err
}

// Segment returns the segment, for its bytes. It is the store's: only Close may close
// it.
func (s *Store) Segment() *segment.Segment { return s.seg }

// lock takes the store's lock. It fails if the store is closed.
func (s *Store) lock() error {
	s.mu.Lock()
	if s.state.Closed {
		s.mu.Unlock()
		return s.closedError()
	}
	return nil
}

func (s *Store) closedError() error { return fmt.Errorf("%w: %s", errClosed, s.seg.Name()) }

// locate finds the payload in the chunk of an object of this store.
func (s *Store) locate(o *Object) { o.locate(s.opt.DataOffset, s.opt.Payloads == nil) }

// locate finds the payload in the chunk of an object. The payload that an owner lays out is the
// whole chunk behind the header.
func (o *Object) locate(dataOffset int, plain bool) {
	lead := shmring.HeaderSize
	o.length = o.chunk.Size - shmring.HeaderSize
	if plain {
		lead = plainLead
		o.length = o.chunk.DescriptionOffset - (plainLead - shmring.HeaderSize)
	}
	o.offset = uint64(dataOffset) + o.chunk.Address + uint64(lead)
}
