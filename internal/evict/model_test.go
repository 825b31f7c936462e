package evict

import (
	"container/list"
	"math"
	"math/bits"
)

type state uint8

const (
	gone state = iota
	stored
	ghostly
)

// listed is the rule of package evict written down plainly, as a model for tests: every object
// and every ghost is in a list of its age, and moves to the next list when its time has come. The
// values of a Policy are exactly those of a listed.

// listedEntry is what a policy keeps of one stored object. It is dead once the
// object was evicted or removed: later calls with it do nothing.
type listedEntry struct {
	cost float64

	last    int64   // time of the last use
	gap     float64 // mean logarithm (of base 2) of the times between uses
	returns uint8   // saturates
	class   uint8
	age     uint8

	state      state
	hash       uint64
	prev, next *listedEntry  // of the same age
	order      *list.Element // among the ghosts
}

// listed values the objects of one cache. The caller must lock it.
type listed struct {
	now int64

	// byAge has the stored objects and ghosts of an age, the last used first:
	// rings, so that one is unlinked without knowing which it is in.
	byAge [ages]listedEntry

	ghosts map[uint64]*listedEntry
	order  list.List // ghosts by eviction, the oldest last

	left [classes][ages]shares
	rate [classes][ages]float64
}

// New makes a policy of an empty cache.
func newListed() *listed {
	p := &listed{ghosts: map[uint64]*listedEntry{}}
	for a := range p.byAge {
		r := &p.byAge[a]
		r.prev, r.next = r, r
	}
	for c := range classes {
		p.learn(c)
	}
	return p
}

// Add records that an object was stored, and that making it costs so much, in any
// unit. If its key was evicted lately, this is a return.
func (p *listed) Add(key string, cost float64) *listedEntry {
	p.tick()
	if !(cost > 0) {
		cost = 0 // or not a number
	}
	e := &listedEntry{cost: float64(float32(min(cost, math.MaxFloat32))), last: p.now, state: stored, hash: hash(key)}
	if g := p.ghosts[e.hash]; g != nil {
		// A new entry, so that the old pointer stays dead.
		e.last, e.gap, e.returns, e.class, e.age = g.last, g.gap, g.returns, g.class, g.age
		p.drop(g)
		p.returned(e)
	}
	p.enter(e, 0)
	return e
}

// Hit records that the object was used. Its value may well be less after that: as
// when objects of its kind return three times and this was the third.
func (p *listed) Hit(e *listedEntry) {
	if e.state != stored {
		return
	}
	p.tick()
	e.unlink()
	p.returned(e)
	p.enter(e, 0)
}

// Evict records that the object was evicted to make room. Its key is remembered.
func (p *listed) Evict(e *listedEntry) {
	if e.state != stored {
		return
	}
	if old := p.ghosts[e.hash]; old != nil {
		p.drop(old) // another key with this hash
	}
	if len(p.ghosts) == maxGhosts {
		p.drop(p.order.Back().Value.(*listedEntry))
	}
	// A copy, so that the caller's pointer is dead.
	g := *e
	e.unlink()
	e.state = gone
	g.state = ghostly
	g.prev.link(&g)
	g.order = p.order.PushFront(&g)
	p.ghosts[g.hash] = &g
}

// Remove records that the object went for another reason than a lack of room. Its
// key is not remembered, and teaches nothing about others.
func (p *listed) Remove(e *listedEntry) {
	if e.state == stored {
		e.unlink()
		e.state = gone
	}
}

// Value is what evicting the object loses: cost per use of the cache. Sums of
// values are values of sets of objects. They can be compared until the next Add
// or Hit; whoever needs room gets the most for it where the loss per byte is
// least. A value is finite and not negative, and so are sums.
func (p *listed) Value(e *listedEntry) float64 {
	if e.state != stored {
		return 0
	}
	return e.cost * p.rate[e.class][e.age]
}

// tick advances the time by one use, and with it the ages.
func (p *listed) tick() {
	p.now++
	for a := range ages - 1 {
		// One object at most: no two have the same last use.
		r := &p.byAge[a]
		if e := r.prev; e != r && p.now-e.last >= start(a+1) {
			p.left[e.class][a].all++
			e.unlink()
			p.enter(e, a+1)
		}
	}
	if p.now%forget == 0 {
		for c := range p.left {
			for a := range p.left[c] {
				p.left[c][a].used /= 2
				p.left[c][a].all /= 2
			}
		}
	}
	if p.now%refresh == 0 {
		p.learn(int(p.now / refresh % classes))
	}
}

// returned counts a use of what was used before and makes it part of e's
// history. e is in no ring.
func (p *listed) returned(e *listedEntry) {
	s := &p.left[e.class][e.age]
	s.used++
	s.all++
	gap := math.Log2(float64(p.now - e.last))
	if e.returns < math.MaxUint8 {
		e.returns++
	}
	e.gap += max(newest, 1/float64(e.returns)) * (gap - e.gap)
	level := min(bits.Len8(e.returns), levels) - 1
	e.class = uint8(1 + level*gaps + min(int(e.gap), gaps-1))
	e.last = p.now
}

func (p *listed) enter(e *listedEntry, age int) {
	e.age = uint8(age)
	p.byAge[age].link(e)
}

// link puts n after e.
func (e *listedEntry) link(n *listedEntry) {
	n.prev, n.next = e, e.next
	e.next.prev = n
	e.next = n
}

func (e *listedEntry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

// drop forgets a ghost.
func (p *listed) drop(g *listedEntry) {
	delete(p.ghosts, g.hash)
	p.order.Remove(g.order)
	g.unlink()
	g.state = gone
}

// learn computes the rates of a class. From the oldest age down, an age is worth
// keeping on into the next span as long as that has the better rate.
func (p *listed) learn(class int) {
	type interval struct{ returns, time, outlive float64 }
	rate := func(x interval) float64 { return x.returns / x.time }
	var later [ages]interval // the intervals after this age, the nearest last
	n := 0
	for a := ages - 1; a >= 0; a-- {
		width := float64(start(a+1) - start(a))
		s := p.left[class][a]
		q := (s.used + strength*prior(class, start(a), width)) / (s.all + strength)
		now := interval{q, width * (1 - q/2), 1 - q}
		for n > 0 && rate(later[n-1]) > rate(now) {
			n--
			next := later[n]
			now = interval{now.returns + now.outlive*next.returns, now.time + now.outlive*next.time, now.outlive * next.outlive}
		}
		later[n] = now
		n++
		p.rate[class][a] = rate(now)
	}
}
