package directory

import (
	"cmp"
	"slices"
	"sync"
)

// Query is what is asked about a chain of chunks.
type Query struct {
	// Most is how many instances are wanted; 0 is all that hold the first chunk.
	Most int
	// Exclude is an instance that is not wanted, as who asks for others has no use for itself.
	Exclude string
}

// A Prefix is how much of a chain an instance holds from the first chunk on.
type Prefix struct {
	Instance string
	// Chunks is how many every worker of the instance holds, at any location.
	Chunks int
	// Places are the locations that hold some of them, by name.
	Places []Place
	// Last is a location of the last chunk.
	Last string
	// Stale is set if reports about one of the places were lost, or it is in the midst of a full synchronisation.
	Stale bool
}

// A Place is a location and how many chunks of a prefix it holds at any worker.
type Place struct {
	Location string
	Chunks   int
}

// finding is the memory of one look-up.
type finding struct {
	single  []uint32
	holders [][]uint32
	reach   map[*instance]int // it holds less than that many chunks; -1: it is among the found
}

var findings = sync.Pool{New: func() any { return &finding{reach: map[*instance]int{}} }}

// Find returns the instances that hold the longest prefixes of a chain, the longest first. It looks each chunk up once,
// and then goes from the last chunk to the first, until Most instances are found: who holds a chunk is checked for the
// chunks in front of it. So a look-up costs what the chain and the answer cost, and instances that hold nothing of the
// chain cost nothing.
//
// The answer is what was reported: the chunk may be gone when it is asked for.
func (d *Directory) Find(chain []Key, q Query) []Prefix {
	chain = chain[:min(len(chain), maxChain)]
	f := findings.Get().(*finding)
	defer findings.Put(f)
	f.single, f.holders = slices.Grow(f.single[:0], len(chain)), f.holders[:0]
	clear(f.reach)
	d.mu.RLock()
	defer d.mu.RUnlock()
	for i, k := range chain {
		holders := d.table.holders(k, f.single[i:i:i+1])
		if !slices.ContainsFunc(holders, func(h uint32) bool { return d.locations[h] != nil }) {
			break
		}
		f.holders = append(f.holders, holders)
	}
	defer clear(f.holders) // it would keep lists
	if len(f.holders) == 0 {
		return nil
	}
	most := q.Most // no more than hold the first chunk, which is only counted where that may be fewer
	if first := f.holders[0]; most <= 0 || len(first) <= 4*most {
		all := d.distinct(first, q.Exclude)
		most = min(all, cmp.Or(max(most, 0), all))
	}
	var found []Prefix
	for i := len(f.holders) - 1; i >= 0 && len(found) < most; i-- {
		for _, h := range f.holders[i] {
			l := d.locations[h]
			if l == nil || l.worker.instance.name == q.Exclude {
				continue
			}
			at := l.worker.instance
			if reach, tried := f.reach[at]; tried && (reach < 0 || i >= reach) {
				continue
			}
			j := i
			for j >= 0 && at.holds(f.holders[j]) {
				j--
			}
			f.reach[at] = j
			if j >= 0 {
				continue
			}
			found = append(found, at.prefix(f.holders[:i+1]))
			if len(found) == most {
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Chunks, a.Chunks), cmp.Compare(a.Instance, b.Instance))
	})
	return found
}

// distinct returns how many instances are among holders.
func (d *Directory) distinct(holders []uint32, exclude string) int {
	all := make(map[*instance]struct{}, len(holders))
	for _, h := range holders {
		if l := d.locations[h]; l != nil && l.worker.instance.name != exclude {
			all[l.worker.instance] = struct{}{}
		}
	}
	return len(all)
}

// holds reports whether every worker of an instance is among the holders of a chunk.
func (i *instance) holds(holders []uint32) bool {
	for _, w := range i.workers {
		if w.away || !slices.ContainsFunc(w.locations, func(l *location) bool { return has(holders, l.holder) }) {
			return false
		}
	}
	return true
}

func has(holders []uint32, h uint32) bool {
	_, found := slices.BinarySearch(holders, h)
	return found
}

// prefix is what an instance holds of chunks with these holders.
func (i *instance) prefix(chunks [][]uint32) Prefix {
	p := Prefix{Instance: i.name, Chunks: len(chunks)}
	var here []string // the locations of a chunk, each once, though several workers have it
	for n, holders := range chunks {
		here = here[:0]
		for _, w := range i.workers {
			for _, l := range w.locations {
				if !has(holders, l.holder) || slices.Contains(here, l.name) {
					continue
				}
				here = append(here, l.name)
				at := slices.IndexFunc(p.Places, func(x Place) bool { return x.Location == l.name })
				if at < 0 {
					at = len(p.Places)
					p.Places = append(p.Places, Place{Location: l.name})
				}
				p.Places[at].Chunks++
				if n == len(chunks)-1 && p.Last == "" {
					p.Last = l.name
				}
				if l.gap || w.sync != nil && !w.sync.complete && w.sync.location == l.name {
					p.Stale = true
				}
			}
		}
	}
	slices.SortFunc(p.Places, func(a, b Place) int { return cmp.Compare(a.Location, b.Location) })
	return p
}

// Holds reports whether a chunk is at a location of a worker.
func (d *Directory) Holds(id ID, location string, k Key) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	w := d.worker(id)
	if w == nil {
		return false
	}
	l, _ := d.location(w, location, false)
	var single [1]uint32
	return l != nil && has(d.table.holders(k, single[:0]), l.holder)
}
