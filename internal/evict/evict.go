// Package evict estimates what evicting an object from a cache would lose, by how
// objects came back so far.
//
// A policy with a fixed idea of which objects return is badly wrong on some
// load: recency on loops and scans, frequency on conversations that end. So
// this one measures. Objects are in classes, by how often they returned and
// after how long; for each class and each age (time since the last use) the
// policy counts which share returned before they grew older. Of these shares
// follows the best rate of returns per time that keeping an object can have:
// over all the times to keep it, the expected returns divided by the expected
// time. That is the Gittins index, and times the cost to make the object again
// it is its value. Evicted keys stay remembered for a while, so returns are also
// seen that the cache missed, and a key that returns has its history back.
//
// Time is counted in uses. Nothing is random, so equal calls give equal values.
package evict

import (
	"container/list"
	"math"
	"math/bits"
)

// maxGhosts bounds how many evicted keys are remembered. One takes about 150
// bytes, the map and the list included; all of them 2.4 MiB.
const maxGhosts = 1 << 14

// None of these is delicate: halving or doubling one moves the saved cost of a
// trace of bench/eviction by little more than one part in a hundred at most.
// newest does most: less is better for steady popularity, more for a drift.
const (
	ages    = 40 // two per octave, up to a million uses
	gaps    = 20 // octaves of the mean time between returns
	levels  = 4  // once, 2 or 3, 4 to 7, and more returns
	classes = 1 + levels*gaps

	strength = 4       // how many observations the prior is worth
	newest   = 0.2     // the least weight of the last gap in the mean
	forget   = 1 << 15 // observations count half after so many uses
	refresh  = 8       // uses per class whose rates are computed again
)

type state uint8

const (
	gone state = iota
	stored
	ghost
)

// Entry is what a policy keeps of one stored object. It is dead once the
// object was evicted or removed: later calls with it do nothing.
type Entry struct {
	cost float64

	last    int64   // time of the last use
	gap     float64 // mean logarithm (of base 2) of the times between uses
	returns uint8   // saturates
	class   uint8
	age     uint8

	state      state
	hash       uint64
	prev, next *Entry        // of the same age
	order      *list.Element // among the ghosts
}

// Policy values the objects of one cache. The caller must lock it.
type Policy struct {
	now int64

	// byAge has the stored objects and ghosts of an age, the last used first:
	// rings, so that one is unlinked without knowing which it is in.
	byAge [ages]Entry

	ghosts map[uint64]*Entry
	order  list.List // ghosts by eviction, the oldest last

	left [classes][ages]shares
	rate [classes][ages]float64
}

// shares are how many left an age by being used, and in any way.
type shares struct{ used, all float64 }

// New makes a policy of an empty cache.
func New() *Policy {
	p := &Policy{ghosts: map[uint64]*Entry{}}
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
func (p *Policy) Add(key string, cost float64) *Entry {
	p.tick()
	if !(cost > 0) {
		cost = 0 // or not a number
	}
	e := &Entry{cost: min(cost, math.MaxFloat32), last: p.now, state: stored, hash: hash(key)}
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
func (p *Policy) Hit(e *Entry) {
	if e.state != stored {
		return
	}
	p.tick()
	e.unlink()
	p.returned(e)
	p.enter(e, 0)
}

// Evict records that the object was evicted to make room. Its key is remembered.
func (p *Policy) Evict(e *Entry) {
	if e.state != stored {
		return
	}
	if old := p.ghosts[e.hash]; old != nil {
		p.drop(old) // another key with this hash
	}
	if len(p.ghosts) == maxGhosts {
		p.drop(p.order.Back().Value.(*Entry))
	}
	// A copy, so that the caller's pointer is dead.
	g := *e
	e.unlink()
	e.state = gone
	g.state = ghost
	g.prev.link(&g)
	g.order = p.order.PushFront(&g)
	p.ghosts[g.hash] = &g
}

// Remove records that the object went for another reason than a lack of room. Its
// key is not remembered, and teaches nothing about others.
func (p *Policy) Remove(e *Entry) {
	if e.state == stored {
		e.unlink()
		e.state = gone
	}
}

// Value is what evicting the object loses: cost per use of the cache. Sums of
// values are values of sets of objects. They can be compared until the next Add
// or Hit; whoever needs room gets the most for it where the loss per byte is
// least. A value is finite and not negative, and so are sums.
func (p *Policy) Value(e *Entry) float64 {
	if e.state != stored {
		return 0
	}
	return e.cost * p.rate[e.class][e.age]
}

// tick advances the time by one use, and with it the ages.
func (p *Policy) tick() {
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

// start is the least time since the last use of an age: 0, 1, 2, 3, 4, 6, 8, 12.
func start(age int) int64 {
	if age < 2 {
		return int64(age)
	}
	return int64(2+age%2) << (age/2 - 1)
}

// returned counts a use of what was used before and makes it part of e's
// history. e is in no ring.
func (p *Policy) returned(e *Entry) {
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

func (p *Policy) enter(e *Entry, age int) {
	e.age = uint8(age)
	p.byAge[age].link(e)
}

// link puts n after e.
func (e *Entry) link(n *Entry) {
	n.prev, n.next = e, e.next
	e.next.prev = n
	e.next = n
}

func (e *Entry) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

// drop forgets a ghost.
func (p *Policy) drop(g *Entry) {
	delete(p.ghosts, g.hash)
	p.order.Remove(g.order)
	g.unlink()
	g.state = gone
}

// span is an interval of ages, for an object that has reached it: the expected
// returns and the expected time until it returns or outlives the interval, and
// the chance that it outlives it.
type span struct{ returns, time, outlive float64 }

func (s span) rate() float64 { return s.returns / s.time }

// then is s and, for what outlives it, next.
func (s span) then(next span) span {
	return span{s.returns + s.outlive*next.returns, s.time + s.outlive*next.time, s.outlive * next.outlive}
}

// learn computes the rates of a class. From the oldest age down, an age is worth
// keeping on into the next span as long as that has the better rate.
func (p *Policy) learn(class int) {
	var later [ages]span // the spans after this age, the nearest last
	n := 0
	for a := ages - 1; a >= 0; a-- {
		width := float64(start(a+1) - start(a))
		s := p.left[class][a]
		q := (s.used + strength*prior(class, start(a), width)) / (s.all + strength)
		now := span{q, width * (1 - q/2), 1 - q}
		for n > 0 && later[n-1].rate() > now.rate() {
			n--
			now = now.then(later[n])
		}
		later[n] = now
		n++
		p.rate[class][a] = now.rate()
	}
}

// prior is the share that returns while its age grows from start by width as
// long as nothing is known: returns come as often as they did, and new objects
// are like those that returned a quarter of a time in 256 uses.
func prior(class int, start int64, width float64) float64 {
	returns, time := 0.25, 256.0
	if class > 0 {
		level, gap := (class-1)/gaps, (class-1)%gaps
		returns = 1.5 * float64(int(1)<<level)
		time = returns * math.Exp2(float64(gap)+0.5)
	}
	return 1 - math.Exp(-width*returns/(time+float64(start)))
}

// hash is FNV-1a. Keys with equal hashes share a history, which does no harm.
func hash(key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return h
}
