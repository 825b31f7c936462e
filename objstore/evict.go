package objstore

import (
	"errors"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// place takes a chunk, and evicts what is cheapest to lose until there is room.
func (p *pool) place(size int, tenant string) (address uint64, id uint32, payload []byte, err error) {
	if err := p.admit(size, tenant); err != nil {
		return 0, 0, nil, err
	}
	p.markIDs()
	failpoint.Hit("pool.alloc")
	if err := p.freeEntry(); err != nil {
		return 0, 0, nil, err
	}
	var held idSet // by readers
	for {
		address, id, payload, err = p.mem.Alloc(size)
		if !errors.Is(err, ErrFull) {
			failpoint.Hit("pool.allocated")
			return address, id, payload, err
		}
		victims, ok := p.mem.Cheapest(size, func(id uint32) (float64, bool) {
			if held.has(id) {
				return 0, false
			}
			return p.loss(p.w.objects[id])
		})
		if !ok {
			return 0, 0, nil, p.fullError(size, held)
		}
		held.add(p.evict(victims))
	}
}

// freeEntry makes sure that the sidecar has an entry for one more object.
func (p *pool) freeEntry() error {
	var held idSet // by readers
	for p.ctl != nil && p.mem.Len() >= p.ctl.Options().Objects {
		victim, ok := p.cheapest(p.w.objects, held)
		if !ok {
			return p.fullError(0, held)
		}
		held.add(p.evict([]uint32{victim.id}))
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

// cheapest returns the idle object that it costs least to lose, of some.
func (p *pool) cheapest(objects map[uint32]*object, held idSet) (best *object, ok bool) {
	least, n := 0.0, 0
	for _, o := range objects {
		if c, may := p.loss(o); may && !held.has(o.id) && (best == nil || c < least) {
			best, least = o, c
		}
		if n++; n >= maxSample && best != nil {
			break
		}
	}
	return best, best != nil
}

// loss says what evicting an object loses, and whether it may be.
func (p *pool) loss(o *object) (float64, bool) {
	if !p.idle(o) {
		return 0, false
	}
	if o.cached == nil {
		return 0, true // retired
	}
	return p.cache.Value(o.cached), true
}

// idle says whether nobody can need the object any more. A discarded one is there
// only if the memory was gone when it was to be dropped.
func (p *pool) idle(o *object) bool {
	return o.state != reserved && o.leases == 0 && !p.touched(o) && p.over(o)
}

func (p *pool) touched(o *object) bool {
	_, ok := p.w.touched[o.id]
	return ok
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
	for id := range p.mem.Live() {
		if p.idle(p.w.objects[id]) {
			freed = append(freed, id)
		}
	}
	err = p.w.sv.guard(Handle{}, func() error { p.evict(freed); return nil })
	// Those that a reader looks at stay, and those behind a fault.
	return slices.DeleteFunc(freed, func(id uint32) bool { return p.w.objects[id] != nil }), err
}

// clear makes every key absent and frees what nobody can still read.
func (p *pool) clear() error {
	failpoint.Hit("pool.clear.begin")
	clear(p.w.touched)
	for _, o := range p.w.index {
		p.w.retire(o)
		failpoint.Hit("pool.clear.one")
	}
	_, err := p.freeUnused()
	failpoint.Hit("pool.clear.end")
	return err
}
