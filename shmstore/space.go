package shmstore

import (
	"iter"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/line"
	"github.com/ringcache/ringcache/shmring"
)

// space is the part of a [Store] that decides where a chunk goes and what is evicted for it: the
// allocator, the bytes of each tenant, the order in which objects go, and the callers that wait for room.
//
// What keeps a chunk in use is its class. classOf derives it from what lifetime counts, and reclassify
// moves the chunk and its bytes from one sum to another:
//
//   - reserved, leased, quarantined: somebody needs it;
//   - ancestor: a descendant of it is in one of these;
//   - parent: it has children, of which none is needed. It can go after them;
//   - idle: it can go at once, unless a reader of this library looks at it in place.
//
// A put asks place for a chunk. The tenant's own objects go until its quota allows the new one (admit),
// then an idle object if the sidecar has no entry left (freeEntry), then the cheapest run of holes and
// idle objects that is long enough (chooseVictims). A victim is hidden first, which is durability's, and
// stays if a reader holds it. What is in quarantine is examined in between, which is lifetime's. If none
// of that gives room, the put fails with a [FullError], or waits in the line of the store or of its
// tenant. Bytes that become available wake the first of a line.
//
// A search that found nothing is remembered (search), so that a full store answers without another one,
// until bytes become available that were not.
//
// families are parents and children: a parent never goes before its children.
//
// See docs/decisions.md, "Room is made when it is needed, and there is no watermark".
//
// space knows no requests. It calls lifetime for two things: to release what is in quarantine
// (releaseNext), and when the chunk of an object is gone. Of keys it has the index of lifetime, in which
// families look for a parent. All methods are called with Store.mu held. A caller that waits gives the
// lock away meanwhile.
type space struct {
	pool       *shmring.Pool
	lifetime   *lifetime
	durability *durability
	evictor    *evict.Policy
	size       int // Options.Size, for errors
	quotas     evict.Quotas

	ledger
	families families
	waiters  line.Waiters
	search   search
	spares   spares   // of searches for room
	entries  spares   // of searches for an entry of the sidecar
	victims  []uint32 // of place, kept for its memory

	looked  int // objects looked at in search of room
	evicted int // objects that went for it
}

// newSpace returns the space of a pool in which nothing is yet.
func newSpace(o Options, pool *shmring.Pool) space {
	return space{
		pool: pool, evictor: evict.New(), size: o.Size, quotas: evict.Quotas{Of: o.Quotas, Each: o.Quota},
		ledger:   ledger{room: int64(pool.Largest()), idle: evict.NewCandidates(placeInStore), tenants: map[string]*tenant{}},
		families: families{parentOf: o.Parent, orphans: map[string]*children{}},
	}
}

// object returns the object of an id, nil if there is none.
func (s *space) object(id uint32) *Object {
	o, _ := s.pool.Owner(id).(*Object)
	return o
}

// all yields every object, and every reservation. They may be dropped meanwhile.
func (s *space) all() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for o := range s.pool.Owners() {
			if !yield(o.(*Object)) {
				return
			}
		}
	}
}

// extent returns the bytes that a chunk takes with so many behind its header.
func (s *space) extent(size int) int64 { return int64(s.pool.Extent(size)) }

// own makes an object the owner of its chunk, which counts from now on.
func (s *space) own(o *Object) {
	s.pool.Own(o.chunk.id, o)
	s.durability.locate(o)
	s.count(o)
}

// reserve takes a chunk for an object, whose ancestors stay from now on, and returns the bytes behind the
// header. An error changes nothing.
func (s *space) reserve(o *Object, key string, size int, as line.Role) (payload []byte, err error) {
	s.families.addChild(o, key) // first, so that its ancestors stay
	err = s.durability.guard(func() (err error) {
		o.chunk.address, o.chunk.id, payload, err = s.place(size, o.tenant(), as)
		return err
	})
	if err != nil {
		s.families.removeChild(o)
		return nil, err
	}
	o.chunk.size = uint32(len(payload) + shmring.HeaderSize)
	s.own(o)
	return payload, nil
}

// place takes a chunk, and evicts what is cheapest to lose until there is room.
func (s *space) place(size int, tenant string, as line.Role) (address uint64, id uint32, payload []byte, err error) {
	need := s.extent(size)
	if as.Passes() && need <= s.room && !s.waiters.Main.MayPass(need, s.room) {
		return 0, 0, nil, s.fullError(size, s.search.held)
	}
	if s.released() {
		s.search.need, s.search.held = 0, nil
	}
	few := maxExamined
	if as&^line.OfTenant == line.Polling {
		few = maxPollExamined
	}
	few = min(few, s.lifetime.quarantine.len())
	if err := s.admit(size, tenant, as, &few); err != nil {
		return 0, 0, nil, err
	}
	s.durability.markIDs()
	failpoint.Hit("pool.alloc")
	if err := s.freeEntry(size, &few); err != nil {
		return 0, 0, nil, err
	}
	never := need > s.room || size > shmring.MaxChunk-shmring.HeaderSize
	var held idSet // by readers
	for {
		if never || s.pool.Fits(size) {
			address, id, payload, err = s.pool.Alloc(size)
			failpoint.Hit("pool.allocated")
			if err == nil && as.Passes() {
				s.hasPassed(need, tenant, as)
			}
			return address, id, payload, err
		}
		if !s.hopeless(need) {
			if s.chooseVictims(size, held) || s.chooseFamilies(size, held) {
				held.add(s.evict(s.victims))
				continue
			}
			s.failed(need, held)
		}
		if !s.lifetime.releaseNext(&few) {
			return 0, 0, nil, s.fullError(size, s.search.held)
		}
	}
}

// published makes an object one of those that the eviction policy compares.
func (s *space) published(o *Object, key string) {
	s.evictor.AddClaimed(&o.cached, key, evict.Claim{Tenant: o.tenant(), Cost: o.cost, Bytes: o.extent(), Room: s.room})
}

// drop frees the chunk of an object; forget is what the eviction policy does with the object. If the
// memory is gone, the object stays as it is.
func (s *space) drop(o *Object, forget func(*evict.Entry)) {
	s.durability.remove(o) // shared memory first
	// From here on nothing touches it.
	s.pool.Release(o.chunk.id) // first, so that who is woken finds the bytes
	s.uncount(o)
	forget(&o.cached)
	s.lifetime.gone(o)
	s.families.remove(o)
	mustHold(s.checkFreed, o)
}

// discard gives up a chunk that was not published. An object that can't be dropped
// stays idle, so that it goes when room is needed.
func (s *space) discard(o *Object) {
	if err := s.durability.guard(func() error { s.drop(o, s.evictor.Remove); return nil }); err != nil {
		s.families.removeChild(o)
		s.reclassify(o)
	}
}

// fullError returns what is in the way; readers hold the objects held.
func (s *space) fullError(size int, held idSet) error {
	e := &FullError{
		Need: size + shmring.HeaderSize, Used: s.pool.Used(), Size: s.size, Waiting: s.waiters.Main.Wanted(),
		Free: s.room - int64(s.pool.Used()), LargestHole: int64(s.pool.Largest()),
		Reserved: s.bytes[classReserved], Leased: s.bytes[classLeased] + s.bytes[classAncestor],
		Quarantined: s.bytes[classQuarantined], Evictable: s.evictable(),
	}
	for id := range held {
		if o := s.object(id); o != nil && o.class.reachable() {
			e.Viewed += o.extent()
			e.Evictable -= o.extent()
		}
	}
	if s.noEntry() {
		e.MaxObjects = s.maxObjects
	}
	return e
}
