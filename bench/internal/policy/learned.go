package policy

import "github.com/ringcache/ringcache/internal/evict"

// Learned is the product's rule.
type Learned struct {
	*evict.Policy
	room int64
}

// NewLearned makes one of an empty cache of so many bytes.
func NewLearned(room int64) Learned { return Learned{evict.New(), room} }

// Add is evict.Policy.AddClaimed, with the item's key and cost, which is in milliseconds or so.
func (l Learned) Add(it *Item) *evict.Entry {
	e := new(evict.Entry)
	l.AddClaimed(e, it.Key, evict.Claim{Cost: 1e6 * it.Cost, Bytes: it.Size, Room: l.room})
	return e
}
