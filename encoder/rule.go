package encoder

import (
	"iter"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
)

// Rule decides which item goes first of those that nobody needs. A [Manager] calls it under its lock, from one
// goroutine at a time; it must not call the manager, nor keep the sequence. One Rule belongs to one manager.
type Rule interface {
	// Used is called when an item was allocated, and whenever it is hit.
	Used(Input)
	// Dropped is called when an item went: to make room if evicted is true.
	Dropped(in Input, evicted bool)
	// Victim returns the identifier of one of the released items. There is at least one, and what was
	// released first comes first.
	Victim(released iter.Seq[Input]) string
}

// ByCost returns a rule by which goes first what is missed least, by embedding. How likely an item is to be
// needed again is learned from what was needed again so far. cost is the time that it takes to compute an item;
// with nil that is proportional to its embeddings. To choose looks at every released item.
func ByCost(cost func(Input) time.Duration) Rule {
	return &byCost{cost: cost, values: evict.New(), entries: map[string]*evict.Entry{}}
}

// byCost has an entry for each item that is cached, from Used to Dropped.
type byCost struct {
	cost    func(Input) time.Duration
	values  *evict.Policy
	entries map[string]*evict.Entry
}

func (r *byCost) Used(in Input) {
	if e := r.entries[in.Identifier]; e != nil {
		r.values.Hit(e)
		return
	}
	cost := float64(in.Embeds)
	if r.cost != nil {
		cost = float64(r.cost(in))
	}
	e := new(evict.Entry)
	r.values.Add(e, in.Identifier, cost)
	r.entries[in.Identifier] = e
}

func (r *byCost) Dropped(in Input, evicted bool) {
	e := r.entries[in.Identifier]
	if e == nil {
		return
	}
	delete(r.entries, in.Identifier)
	if evicted {
		r.values.Evict(e)
	} else {
		r.values.Remove(e)
	}
}

func (r *byCost) Victim(released iter.Seq[Input]) string {
	best, least, some := "", math.Inf(1), false
	for in := range released {
		loss := math.Inf(1) // what has no embeddings makes no room
		if e := r.entries[in.Identifier]; e != nil && in.Embeds > 0 {
			loss = r.values.Value(e) / float64(in.Embeds)
		}
		if !some || loss < least {
			best, least, some = in.Identifier, loss, true
		}
	}
	return best
}
