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
//
// The package has seven parts: the entries and what happens to them (this file), what a cost that somebody claims
// counts (claims.go), the ages (ages.go), what is learned (learn.go), the evicted keys (ghosts.go), which of
// the objects that may go does go (candidates.go), and what tenants may have (quotas.go).
package evict

import (
	"math"
	"math/bits"
)

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

// Entry is what a policy keeps of one stored object. It has no pointers, so it can be part of
// the object's record. The zero value is a dead entry: so is one whose object was evicted or
// removed. Calls with a dead entry do nothing.
type Entry struct {
	plain   float32 // cost, if nothing was claimed
	claimed float32 // cost, while the claim counts
	hash    uint64
	history
}

// history is how an object was used so far.
type history struct {
	last    int64   // time of the last use
	gap     float64 // mean logarithm (of base 2) of the times between uses
	round   uint32  // of the last use
	returns uint8   // saturates
	class   uint8
	stored  bool // else it is dead, or a ghost's
}

// Policy values the objects of one cache. The caller must lock it.
type Policy struct {
	now    int64
	past   past
	ghosts ghosts
	learned

	norms  [norms]norm
	round  uint32
	stored int64 // bytes in this round
}

// New makes a policy of an empty cache.
func New() *Policy {
	p := &Policy{past: newPast()}
	p.ghosts.init()
	p.rate = unlearned()
	return p
}

// Live reports whether the object of the entry is stored.
func (e *Entry) Live() bool { return e.stored }

// Add records in e, which is dead, that an object was stored, and that making it costs so much,
// in any unit. If its key was evicted lately, this is a return.
func (p *Policy) Add(e *Entry, key string, cost float64) {
	p.tick()
	if !(cost > 0) {
		cost = 0 // or not a number
	}
	cost32 := float32(min(cost, math.MaxFloat32))
	*e = Entry{
		plain: cost32, claimed: cost32, hash: hash(key), history: history{last: p.now, round: p.round, stored: true},
	}
	if g := p.ghosts.find(e.hash); g != 0 {
		e.history = p.ghosts.all[g].history
		e.stored = true
		p.drop(g)
		p.returned(e)
	}
	p.past.mark(&e.history)
}

// Hit records that the object was used. Its value may well be less after that: as
// when objects of its kind return three times and this was the third.
func (p *Policy) Hit(e *Entry) {
	if !e.stored {
		return
	}
	p.tick()
	p.past.unmark(&e.history, p.now)
	p.returned(e)
	p.past.mark(&e.history)
}

// Evict records that the object was evicted to make room. Its key is remembered.
func (p *Policy) Evict(e *Entry) {
	if !e.stored {
		return
	}
	e.stored = false
	if old := p.ghosts.find(e.hash); old != 0 {
		p.drop(old) // another key with this hash
	}
	if p.ghosts.n == maxGhosts {
		p.drop(p.ghosts.oldest())
	}
	p.ghosts.add(e.hash, e.history)
}

// Remove records that the object went for another reason than a lack of room. Its
// key is not remembered, and teaches nothing about others.
func (p *Policy) Remove(e *Entry) {
	if e.stored {
		e.stored = false
		p.past.unmark(&e.history, p.now)
	}
}

// Value is what evicting the object loses: cost per use of the cache. Sums of
// values are values of sets of objects. They can be compared until the next Add
// or Hit; whoever needs room gets the most for it where the loss per byte is
// least. A value is finite and not negative, and so are sums.
func (p *Policy) Value(e *Entry) float64 {
	if !e.stored {
		return 0
	}
	cost := e.claimed
	if p.round-e.round >= claimRounds {
		cost = e.plain
	}
	return float64(cost) * p.rate[e.class][ageOf(p.now-e.last)]
}

// drop forgets a ghost.
func (p *Policy) drop(g int32) {
	p.past.unmark(&p.ghosts.all[g].history, p.now)
	p.ghosts.remove(g)
}

// tick advances the time by one use, and with it the ages.
func (p *Policy) tick() {
	p.now++
	p.past.tick(p.now, &p.learned)
	if p.now%forget == 0 {
		p.forget()
	}
	if p.now%refresh == 0 {
		p.refresh(int(p.now / refresh % classes))
	}
}

// returned counts a use of what was used before and makes it part of e's
// history. e is not marked.
func (p *Policy) returned(e *Entry) {
	after := p.now - e.last
	p.used(e.class, ageOf(after))
	if e.returns < math.MaxUint8 {
		e.returns++
	}
	e.gap += max(newest, 1/float64(e.returns)) * (log2(after) - e.gap)
	level := min(bits.Len8(e.returns), levels) - 1
	e.class = uint8(1 + level*gaps + min(int(e.gap), gaps-1))
	e.last, e.round = p.now, p.round
}

// hash is FNV-1a. Keys with equal hashes share a history, which does no harm.
func hash(key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return h
}
