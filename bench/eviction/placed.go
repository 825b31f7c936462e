package main

import (
	"errors"

	"github.com/ringcache/ringcache/bench/internal/policy"
	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/shmring"
)

// placed is a cache whose items lie in memory, or that at least refuses them
// when leases are in the way.
type placed interface {
	policy.Cache
	account() *occupancy
	close()
}

// occupancy sums how full a cache was after each put, and counts refusals. Puts do not count before warm
// bytes were put.
type occupancy struct {
	capacity int64
	warm     int64

	puts, refused int
	blocked       int // refused although enough bytes were free or not leased

	live int64 // bytes of the items
	// Sums over the looks after every put, as shares.
	used, hole, padding float64
	least               float64 // of used
}

func newOccupancy(capacity, warm int64) occupancy {
	return occupancy{capacity: capacity, warm: warm, least: 1}
}

func (b *occupancy) account() *occupancy { return b }

// room is what a cache finds after a put: the bytes of leased items, of the
// longest run that is free, and those that are neither used nor to be had.
type room struct{ leased, largest, padding int64 }

// count is called after a put of an item, when live is right.
func (b *occupancy) count(it *policy.Item, stored bool, r room) {
	if b.warm > 0 {
		b.warm -= it.Size
		return
	}
	b.puts++
	if !stored {
		b.refused++
		if b.capacity-r.leased >= it.Size {
			b.blocked++
		}
	}
	used := float64(b.live) / float64(b.capacity)
	b.used += used
	b.least = min(b.least, used)
	b.padding += float64(r.padding) / float64(b.capacity)
	if free := b.capacity - b.live; free > 0 {
		b.hole += float64(r.largest) / float64(free)
	} else {
		b.hole++
	}
}

// poolCache is the product: objstore's Pool, but for the readers.
type poolCache struct {
	occupancy
	leases
	mem    *memory
	pool   *shmring.Pool
	policy policy.Learned
	at     map[*policy.Item]*resident
	byID   []*resident
}

type resident struct {
	it    *policy.Item
	id    uint32
	entry *evict.Entry
}

func newPoolCache(capacity, warm int64, l leases) *poolCache {
	m := newMemory(capacity)
	return &poolCache{
		occupancy: newOccupancy(capacity, warm), leases: l, mem: m, pool: shmring.NewPool(m.buf, shmring.PoolOptions{}),
		policy: policy.NewLearned(capacity), at: map[*policy.Item]*resident{},
	}
}

func (p *poolCache) close() { p.mem.close() }

func (p *poolCache) Get(it *policy.Item) bool {
	r := p.at[it]
	if r == nil {
		return false
	}
	p.policy.Hit(r.entry)
	p.begin(it)
	return true
}

func (p *poolCache) Put(it *policy.Item) {
	id, ok := p.place(int(it.Size))
	if ok {
		p.live += it.Size
	}
	p.count(it, ok, room{p.leases.bytes(), int64(p.pool.Largest()), 0})
	if !ok {
		p.begin(nil)
		return
	}
	r := &resident{it, id, p.policy.Add(it)}
	p.at[it] = r
	if id != uint32(len(p.byID)) {
		panic("ids are not in order")
	}
	p.byID = append(p.byID, r)
	p.begin(it)
}

func (p *poolCache) place(size int) (id uint32, ok bool) {
	for {
		_, id, _, err := p.pool.Alloc(size)
		if err == nil {
			p.mem.touch()
			return id, true
		}
		if !errors.Is(err, shmring.ErrFull) {
			return 0, false
		}
		victims, ok := p.pool.Cheapest(nil, size, p.loss)
		if !ok {
			return 0, false
		}
		for _, id := range victims {
			r := p.byID[id]
			p.policy.Evict(r.entry)
			p.pool.Free(id)
			p.byID[id] = nil
			delete(p.at, r.it)
			p.live -= r.it.Size
		}
	}
}

func (p *poolCache) loss(id uint32, _ any) (float64, bool) {
	r := p.byID[id]
	if p.leased(r.it) {
		return 0, false
	}
	return p.policy.Value(r.entry), true
}

// ringCache is upstream's: without room it frees the oldest chunks, up to twice
// the largest object that it is made for, and tries once more.
type ringCache struct {
	occupancy
	leases
	mem   *memory
	ring  *shmring.Ring
	limit int
	at    map[*policy.Item]struct{}
	byID  []*policy.Item
}

// maxObject is upstream's default; what serves larger items has to raise it.
const maxObject = 128 * mib

func newRingCache(capacity, warm int64, largest int64, l leases) *ringCache {
	m := newMemory(capacity)
	return &ringCache{
		occupancy: newOccupancy(capacity, warm), leases: l, mem: m, ring: shmring.NewRing(m.buf, shmring.RingOptions{}),
		limit: int(2 * min(max(maxObject, largest+shmring.HeaderSize), capacity)), at: map[*policy.Item]struct{}{},
	}
}

func (r *ringCache) close() { r.mem.close() }

func (r *ringCache) Get(it *policy.Item) bool {
	_, ok := r.at[it]
	if ok {
		r.begin(it)
	}
	return ok
}

func (r *ringCache) Put(it *policy.Item) {
	id, ok := r.place(int(it.Size))
	if ok {
		r.live += it.Size
	}
	largest, padding := r.room()
	r.count(it, ok, room{r.leases.bytes(), largest, padding})
	if !ok {
		r.begin(nil)
		return
	}
	r.at[it] = struct{}{}
	if id != uint32(len(r.byID)) {
		panic("ids are not in order")
	}
	r.byID = append(r.byID, it)
	r.begin(it)
}

func (r *ringCache) place(size int) (id uint32, ok bool) {
	_, id, _, err := r.ring.Alloc(size)
	if errors.Is(err, shmring.ErrFull) {
		for _, id := range r.ring.Free(func(id uint32, _ []byte) bool { return !r.leased(r.byID[id]) }, r.limit) {
			it := r.byID[id]
			r.byID[id] = nil
			delete(r.at, it)
			r.live -= it.Size
		}
		_, id, _, err = r.ring.Alloc(size)
	}
	if err == nil {
		r.mem.touch()
	}
	return id, err == nil
}

// room returns the longest free run and the padding, which is in front of the
// place where the ring begins anew.
func (r *ringCache) room() (largest, padding int64) {
	s, n := r.ring.State(), uint64(r.capacity)
	padding = int64(s.End-s.Start) - r.live - int64(r.ring.Len())*shmring.HeaderSize
	if s.End >= n {
		return int64(s.Start - (s.End - n)), padding
	}
	return int64(max(n-s.End, s.Start)), padding
}

// leasedCache is the learned policy without a placement, but with leases: what
// a pool could save if any free bytes would do.
type leasedCache struct {
	occupancy
	leases
	*policy.Scored[*evict.Entry]
}

func newLeasedCache(capacity int64, l leases) *leasedCache {
	c := &leasedCache{occupancy: newOccupancy(capacity, 0), leases: l,
		Scored: policy.NewScored(policy.NewLearned(capacity), capacity)}
	c.Held = c.leases.leased
	return c
}

func (c *leasedCache) close() {}

func (c *leasedCache) Get(it *policy.Item) bool {
	ok := c.Scored.Get(it)
	if ok {
		c.begin(it)
	}
	return ok
}

func (c *leasedCache) Put(it *policy.Item) {
	ok := c.leases.bytes()+it.Size <= c.occupancy.capacity
	if ok {
		c.Scored.Put(it)
	}
	c.live = c.Used()
	c.count(it, ok, room{leased: c.leases.bytes()})
	if !ok {
		it = nil
	}
	c.begin(it)
}
