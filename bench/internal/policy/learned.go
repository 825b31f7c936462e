package policy

import "github.com/ringcache/ringcache/internal/evict"

// Learned is the product's rule.
type Learned struct{ *evict.Policy }

// NewLearned makes one of an empty cache.
func NewLearned() Learned { return Learned{evict.New()} }

// Add is evict.Policy's, with the item's key and cost.
func (l Learned) Add(it *Item) *evict.Entry {
	e := new(evict.Entry)
	l.Policy.Add(e, it.Key, it.Cost)
	return e
}
