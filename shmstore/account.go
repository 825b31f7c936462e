package objstore

import "github.com/ringcache/ringcache/shmring"

// class says what keeps the bytes of an object in a pool. The pool keeps sums by
// class, so that nobody has to look at every object to learn them.
type class uint8

const (
	classNone        class = iota // has no chunk
	classReserved                 // is being written
	classLeased                   // by open requests, or touched
	classQuarantined              // aborted, and maybe still to be read
	classIdle                     // nothing; but a reader of this library may look at it
	classes
)

// classOf returns the class that an object with a chunk should be in. A discarded
// one has a chunk only if the memory was gone when it was to be dropped.
func (p *pool) classOf(o *object) class {
	switch {
	case o.state == reserved:
		return classReserved
	case o.leases > 0 || p.isTouched(o):
		return classLeased
	case o.quarantined != nil:
		return classQuarantined
	}
	return classIdle
}

func (p *pool) isTouched(o *object) bool {
	if len(p.w.touched) == 0 {
		return false
	}
	_, ok := p.w.touched[o.id]
	return ok
}

// tenant is what one tenant has in a pool.
type tenant struct {
	used      int64 // bytes
	idleBytes int64 // of them, of idle objects
	idle      bag
	line      line // those that wait for its quota
}

// bag is a set of objects, each of which knows its place in it.
type bag struct {
	items []*object
	kind  int // which of object.places
}

const (
	bagOfPool = iota
	bagOfTenant
	bags
)

func (b *bag) add(o *object) {
	o.places[b.kind] = len(b.items)
	b.items = append(b.items, o)
}

func (b *bag) remove(o *object) {
	last := b.items[len(b.items)-1]
	b.items[o.places[b.kind]] = last
	last.places[b.kind] = o.places[b.kind]
	b.items[len(b.items)-1] = nil
	b.items = b.items[:len(b.items)-1]
}

// charge counts the chunk of a new object, for the pool and its tenant, or with -1
// one that is about to be freed no longer.
func (p *pool) charge(o *object, sign int64) {
	if sign > 0 {
		o.extent = shmring.PoolExtent(o.size - shmring.HeaderSize)
		o.search = p.search.n
	}
	if o.tenant != "" {
		p.tenantOf(o.tenant).used += sign * o.extent
	}
	if sign > 0 {
		p.file(o, p.classOf(o))
	} else {
		p.file(o, classNone)
		p.forgetTenant(o.tenant)
	}
}

func (p *pool) tenantOf(name string) *tenant {
	t := p.tenants[name]
	if t == nil {
		t = &tenant{idle: bag{kind: bagOfTenant}}
		p.tenants[name] = t
	}
	return t
}

func (p *pool) forgetTenant(name string) {
	if t := p.tenants[name]; t != nil && t.used == 0 && t.line.waiting.Len() == 0 {
		delete(p.tenants, name)
	}
}

// file counts an object as of another class.
func (p *pool) file(o *object, c class) {
	was := o.class
	if c == was {
		return
	}
	o.class = c
	p.bytes[was] -= o.extent
	p.bytes[c] += o.extent
	p.bytes[classNone] = 0
	t := p.tenants[o.tenant]
	if was == classIdle {
		o.search = p.search.n
		p.idle.remove(o)
		if t != nil {
			t.idle.remove(o)
			t.idleBytes -= o.extent
		}
	}
	if c == classIdle {
		p.idle.add(o)
		if t != nil {
			t.idle.add(o)
			t.idleBytes += o.extent
		}
	}
	if was != classIdle && (c == classIdle || c == classNone) {
		p.available(o, t)
	}
}

// available takes note that the bytes of an object can be had now.
func (p *pool) available(o *object, t *tenant) {
	if o.search != p.search.n {
		p.search.need, p.search.held = 0, nil
	}
	p.w.wakeFirst(&p.w.line)
	if t != nil {
		p.w.wakeFirst(&t.line)
	}
}

// search is what the last search for room has shown, if it found none: that no run
// of holes and idle objects has need bytes, apart from objects that readers held.
// It holds until bytes can be had that could not be had then. An object whose
// search is n had its bytes available then.
type search struct {
	n    uint64
	need int64 // 0: nothing is known
	held idSet
}

// failed remembers that there is no room.
func (p *pool) failed(need int64, held idSet) {
	p.search = search{p.search.n + 1, need, held}
}

// reachable returns the bytes that are free or can be evicted.
func (p *pool) reachable() int64 { return p.room - int64(p.mem.Used()) + p.bytes[classIdle] }

// hopeless says that there is no room for an extent, without looking for it.
func (p *pool) hopeless(need int64) bool {
	return need > p.reachable() || p.search.need > 0 && need >= p.search.need
}

// released says whether a reader let go of an object that was in the way of the
// last search.
func (p *pool) released() bool {
	if p.search.need == 0 || len(p.search.held) == 0 {
		return false
	}
	holds, dead := p.ctl.Held()
	p.dead += dead
	for id := range p.search.held {
		if _, ok := holds[id]; !ok {
			return true
		}
	}
	return false
}

// mayFit says whether what w waits for can be there.
func (p *pool) mayFit(w *waiter) bool {
	if w.line != &p.w.line {
		t := p.tenants[w.tenant]
		return t == nil || t.used-t.idleBytes+w.need <= p.w.quota(w.tenant)
	}
	if p.noEntry() && len(p.idle.items) == 0 {
		return false
	}
	return !p.hopeless(w.need)
}

// noEntry says whether the sidecar has room for no more object.
func (p *pool) noEntry() bool { return p.ctl != nil && p.mem.Len() >= p.ctl.Options().Objects }
