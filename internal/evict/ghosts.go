package evict

import "math/rand/v2"

// maxGhosts bounds how many evicted keys are remembered. One takes 40 bytes and its place in the
// table; all of them 1 MiB.
const maxGhosts = 1 << 14

// ghosts are the evicted keys that are remembered, in the order of their eviction.
type ghosts struct {
	n int
	// all has the ghosts in a ring of places, by next and prev, around place 0, which is
	// none: behind it is the last one that was evicted, in front of it the oldest.
	all  []ghost
	free int32 // the first of the places that are free, by next; 0: there is none
	// table has the places by hash: a ghost is at its hash, or behind it without a gap.
	// 0 is a gap. At most half of it is used.
	table [1 << tableBits]int32
	// mix is random, so that nobody can choose keys which are all at one place. No value
	// depends on it.
	mix uint64
}

const tableBits = 15 // twice maxGhosts

type ghost struct {
	hash uint64
	history
	prev, next int32
}

func (g *ghosts) init() {
	g.all = make([]ghost, 1, 16)
	g.mix = rand.Uint64() | 1
}

// oldest returns the ghost that was evicted first, of at least one.
func (g *ghosts) oldest() int32 { return g.all[0].prev }

// slot returns where the ghost with a hash is in the table, or the gap where it would be.
func (g *ghosts) slot(hash uint64) int {
	i := g.home(hash)
	for g.table[i] != 0 && g.all[g.table[i]].hash != hash {
		i = (i + 1) % len(g.table)
	}
	return i
}

// home is the place of a hash in the table.
func (g *ghosts) home(hash uint64) int { return int(hash * g.mix >> (64 - tableBits)) }

// find returns the ghost with a hash, 0 if there is none.
func (g *ghosts) find(hash uint64) int32 { return g.table[g.slot(hash)] }

// add remembers a hash that no ghost has.
func (g *ghosts) add(hash uint64, h history) {
	at := g.free
	if at == 0 {
		at = int32(len(g.all))
		g.all = append(g.all, ghost{})
	} else {
		g.free = g.all[at].next
	}
	newest := g.all[0].next
	g.all[at] = ghost{hash: hash, history: h, next: newest}
	g.all[newest].prev = at
	g.all[0].next = at
	g.table[g.slot(hash)] = at
	g.n++
}

// remove forgets a ghost.
func (g *ghosts) remove(at int32) {
	x := g.all[at]
	gap := g.slot(x.hash)
	// Those behind it move up, unless they are where they belong.
	for i := (gap + 1) % len(g.table); g.table[i] != 0; i = (i + 1) % len(g.table) {
		away := (i - g.home(g.all[g.table[i]].hash) + len(g.table)) % len(g.table)
		if away >= (i-gap+len(g.table))%len(g.table) {
			g.table[gap] = g.table[i]
			gap = i
		}
	}
	g.table[gap] = 0
	g.all[x.prev].next, g.all[x.next].prev = x.next, x.prev
	g.all[at] = ghost{next: g.free}
	g.free = at
	g.n--
}
