package objstore

import (
	"errors"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/shmring"
)

// place takes a chunk, and evicts what is cheapest to lose until there is room.
func (p *pool) place(size int, tenant string, as turn) (address uint64, id uint32, payload []byte, err error) {
	need := shmring.PoolExtent(size)
	if as.passes() && need <= p.room && !p.w.line.mayPass(need, p.room) {
		return 0, 0, nil, p.fullError(size, p.search.held)
	}
	if p.released() {
		p.search.need, p.search.held = 0, nil
	}
	looks := maxLooks
	if as&^ofTenant == polling {
		looks = maxPollLooks
	}
	looks = min(looks, p.quarantined.Len())
	if err := p.admit(size, tenant, as, &looks); err != nil {
		return 0, 0, nil, err
	}
	p.markIDs()
	failpoint.Hit("pool.alloc")
	if err := p.freeEntry(size, &looks); err != nil {
		return 0, 0, nil, err
	}
	var held idSet // by readers
	for {
		address, id, payload, err = p.mem.Alloc(size)
		if !errors.Is(err, ErrFull) {
			failpoint.Hit("pool.allocated")
			if err == nil && as.passes() {
				p.hasPassed(need, tenant, as)
			}
			return address, id, payload, err
		}
		if !p.hopeless(need) {
			victims, ok := p.mem.Cheapest(size, func(id uint32) (float64, bool) {
				p.w.looked++
				if held.has(id) {
					return 0, false
				}
				return p.loss(p.w.objects[id])
			})
			if ok {
				held.add(p.evict(victims))
				continue
			}
			p.failed(need, held)
		}
		if !p.look(&looks) {
			return 0, 0, nil, p.fullError(size, p.search.held)
		}
	}
}

// freeEntry makes sure that the sidecar has an entry for one more object.
func (p *pool) freeEntry(size int, looks *int) error {
	var held idSet // by readers
	for p.noEntry() {
		victim, ok := p.cheapest(p.idle.items, held)
		switch {
		case ok:
			held.add(p.evict([]uint32{victim.id}))
		case !p.look(looks):
			return p.fullError(size, held)
		}
	}
	return nil
}

// idSet is a set of ids; nil is an empty one.
type idSet map[uint32]struct{}

func (s idSet) has(id uint32) bool {
	_, ok := s[id]
	return ok
}

func (s *idSet) add(ids idSet) {
	if *s == nil && len(ids) > 0 {
		*s = idSet{}
	}
	maps.Copy(*s, ids)
}

// maxSample bounds a search for one object: the cheapest of so many is cheap
// enough.
const maxSample = 64

// cheapest returns the idle object that it costs least to lose, of some: other ones
// the next time.
func (p *pool) cheapest(idle []*object, held idSet) (best *object, ok bool) {
	least, n := 0.0, 0
	for i := range idle {
		o := idle[(p.sample+i)%len(idle)]
		p.w.looked++
		n++
		if c, _ := p.loss(o); !held.has(o.id) && (best == nil || c < least) {
			best, least = o, c
		}
		if n >= maxSample && best != nil {
			break
		}
	}
	p.sample = (p.sample + n) % max(len(idle), 1)
	return best, best != nil
}

// loss says what evicting an object loses, and whether it may be.
func (p *pool) loss(o *object) (float64, bool) {
	if o.class != classIdle {
		return 0, false
	}
	if o.cached == nil {
		return 0, true // retired
	}
	return p.cache.Value(o.cached), true
}

// evict makes idle objects go, but for those that a reader looks at in place,
// which it returns. If the memory is gone, those that are not dropped yet stay.
func (p *pool) evict(ids []uint32) (held idSet) {
	done := 0
	defer func() {
		for _, id := range ids[done:] { // after a fault; one by one, since more may be gone
			if o := p.w.objects[id]; o != nil && o.state != discarded {
				_ = p.w.sv.guard(Handle{}, func() error { p.mem.Publish(id); return nil })
			}
		}
	}()
	for _, id := range ids {
		p.mem.Kill(id)
		failpoint.Hit("pool.evict.killed")
	}
	var holds map[uint32]struct{}
	if p.ctl != nil {
		var dead int
		holds, dead = p.ctl.Held()
		p.dead += dead
	}
	for _, id := range ids {
		if _, ok := holds[id]; ok {
			p.mem.Publish(id) // whoever saw it dead was late anyway
			held.add(idSet{id: {}})
		} else {
			p.drop(p.w.objects[id], p.cache.Evict)
		}
		done++
	}
	return held
}

// freeUnused evicts every object that is idle, whatever it is worth.
func (p *pool) freeUnused() (freed []uint32, err error) {
	err = p.w.sv.guard(Handle{}, func() error {
		for looks := p.quarantined.Len(); p.look(&looks); {
		}
		for id := range p.mem.Live() {
			if p.w.objects[id].class == classIdle {
				freed = append(freed, id)
			}
		}
		p.evict(freed)
		return nil
	})
	// Those that a reader looks at stay, and those behind a fault.
	return slices.DeleteFunc(freed, func(id uint32) bool { return p.w.objects[id] != nil }), err
}

// clear makes every key absent and frees what nobody can still read.
func (p *pool) clear() error {
	failpoint.Hit("pool.clear.begin")
	for id := range p.w.touched {
		p.w.untouch(p.w.objects[id])
	}
	for _, o := range p.w.index {
		p.w.retire(o)
		failpoint.Hit("pool.clear.one")
	}
	_, err := p.freeUnused()
	failpoint.Hit("pool.clear.end")
	return err
}
