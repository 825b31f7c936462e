package tier

import (
	"hash/maphash"
	"math"
)

const (
	ghostRows = 1 << 14
	ghostWays = 4
)

// ghosts count how often keys were asked for lately that are not in memory, by hash. A row keeps its latest
// four keys, so that a stream of keys that come once replaces only other counts. The lock of the fetcher
// guards them.
type ghosts struct {
	seed maphash.Seed
	rows [][ghostWays]ghost
}

// ghost is a key that was asked for lately, by a part of its hash: two keys may share a count.
type ghost struct {
	tag   uint32
	count uint16 // 0 is no ghost
}

// newGhosts returns counts of zero, with a hash of their own.
func newGhosts() ghosts {
	return ghosts{maphash.MakeSeed(), make([][ghostWays]ghost, ghostRows)}
}

// count counts a key, and returns how often it was counted.
func (g *ghosts) count(k Key) int {
	row, tag := g.find(k)
	at, n := ghostWays-1, uint16(0)
	for i, have := range row {
		if have.tag == tag && have.count > 0 {
			at, n = i, have.count
			break
		}
	}
	copy(row[1:at+1], row[:at])
	if n < math.MaxUint16 {
		n++
	}
	row[0] = ghost{tag, n}
	return int(n)
}

// counted returns how often a key was counted.
func (g *ghosts) counted(k Key) int {
	row, tag := g.find(k)
	for _, have := range row {
		if have.tag == tag {
			return int(have.count)
		}
	}
	return 0
}

// find returns the row of a key, and the key in it.
func (g *ghosts) find(k Key) (row *[ghostWays]ghost, tag uint32) {
	hash := maphash.Comparable(g.seed, k)
	return &g.rows[hash%ghostRows], uint32(hash >> 32)
}
