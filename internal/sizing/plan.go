package sizing

import (
	"math"
)

// Sizes are the bytes of levels.
type Sizes struct {
	Hosts  int
	Memory int64 // of each host
	Disk   int64 // of each host; 0 is none
	Store  int64 // that all hosts share; 0 is none, and Unbounded one that gives up nothing
}

// Plan is what is to be expected.
type Plan struct {
	PerRequest float64 // look-ups of a request
	Found      [Nowhere + 1]Part
}

// Part is the look-ups of what is found in one level, or nowhere.
type Part struct {
	Share float64 // of all look-ups
	Bytes float64 // of the objects, divided by the number of all look-ups
}

// PlanShape returns what to expect of a load that has gone on for long.
func PlanShape(s Shape, z Sizes) Plan {
	found, all := s.replay(z.Memory, z.Disk, mostPlaces)
	if z.Store != 0 {
		asked := max(found[Nowhere]-s.Once, 0) // of what is asked for again
		found[InStore] = asked * lru(all, s.Once, float64(z.Store)/float64(s.Bytes), z.Hosts)
		found[Nowhere] -= found[InStore]
	}
	p := Plan{PerRequest: 1}
	for i, share := range found {
		p.Found[i] = Part{share, share * float64(s.Bytes)}
	}
	return p
}

// lru returns the share of questions for objects of classes that are answered by a store with so many places, less
// than 0 for no bound, which gives up what was used least lately. It is Che's approximation: an object is there if it was used within
// the last T look-ups of a host, where T is the time for which as many objects as there are places were used.
//
// One host asks for an object again as it did in its replay. The questions of all the others come at random.
func lru(all []class, once, places float64, hosts int) float64 {
	others := float64(hosts - 1)
	// there returns how likely an object is in the store, at any time, and when a host asks for it.
	there := func(c *class, t float64) (always, asked float64) {
		asks := c.rate * c.missed
		share, mean := c.again.within(t, asks)
		notOthers := math.Exp(-others * asks * t)
		return 1 - notOthers*max(1-asks*mean, 0), 1 - notOthers*(1-share)
	}
	used := func(t float64) float64 {
		n := once * float64(hosts) * t
		for i := range all {
			always, _ := there(&all[i], t)
			n += all[i].objects * always
		}
		return n
	}
	if places < 0 {
		return 1
	}
	low, high := 0.0, 1.0
	for used(high) < places && high < 1e12 {
		high *= 2
	}
	for range 60 {
		if mid := (low + high) / 2; used(mid) < places {
			low = mid
		} else {
			high = mid
		}
	}
	hits, questions := 0.0, 0.0
	for i := range all {
		c := &all[i]
		_, asked := there(c, low)
		hits += c.objects * c.rate * c.missed * asked
		questions += c.objects * c.rate * c.missed
	}
	if questions == 0 {
		return 0
	}
	return hits / questions
}

// PlanTrace replays a trace of at least two requests, whose first half only fills the levels.
func PlanTrace(t *Trace, z Sizes) Plan {
	found := t.Replay(z.Hosts, z.Memory, z.Disk)
	store := NewStore(z.Store)
	var p Plan
	warm, lookups := t.Requests()/2, 0.0
	for i := range t.Requests() {
		from, to := t.Request(i)
		cut := false // what is in front of this one is computed, so that this one is of no use
		for k := from; k < to; k++ {
			id, at := t.Keys[k], found[k]
			if at == Nowhere && !cut && store.Use(id) {
				at = InStore
			}
			if cut || at == Nowhere {
				at = Nowhere
				store.Put(id, t.Size(id))
			}
			cut = at == Nowhere && t.Cuts(k, to)
			if i >= warm {
				lookups++
				p.Found[at].Share++
				p.Found[at].Bytes += float64(t.Size(id))
			}
		}
	}
	for i := range p.Found {
		p.Found[i].Share /= lookups
		p.Found[i].Bytes /= lookups
	}
	p.PerRequest = lookups / float64(t.Requests()-warm)
	return p
}
