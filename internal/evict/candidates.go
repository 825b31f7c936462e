package evict

// Candidates are the objects of a level, or of a tenant in it, that can be evicted now: nobody needs them, and no child
// of theirs is there. The level adds and removes them; which of them goes is decided here, for every level alike.
//
// Each use of the cache changes the values of all objects, so an order of them would have to be made anew each time.
// Candidates are in no order, and the cheapest is that of a sample.
type Candidates[T comparable] struct {
	items []T
	place func(T) *int32 // of the object's record: where it is among the items
	next  uint64         // where the next sample begins: behind the one before
}

// sample is how many candidates are compared to choose one.
const sample = 64

// stride is between two candidates of a sample: those that were stored together are neighbours, and much alike. A prime
// larger than any number of candidates brings each of them once.
const stride = 4294967291

// NewCandidates makes an empty set of objects whose records have a place for it.
func NewCandidates[T comparable](place func(T) *int32) Candidates[T] {
	return Candidates[T]{place: place}
}

// Len returns how many there are.
func (c *Candidates[T]) Len() int { return len(c.items) }

// Has reports whether an object is in its place among the candidates.
func (c *Candidates[T]) Has(x T) bool {
	i := int(*c.place(x))
	return i >= 0 && i < len(c.items) && c.items[i] == x
}

// Add adds an object, which is none of them.
func (c *Candidates[T]) Add(x T) {
	*c.place(x) = int32(len(c.items))
	c.items = append(c.items, x)
}

// Remove removes one of them.
func (c *Candidates[T]) Remove(x T) {
	at, end := c.place(x), len(c.items)-1
	last := c.items[end]
	c.items[*at], *c.place(last) = last, *at
	var none T
	c.items[end] = none
	c.items = c.items[:end]
	*at = -1
}

// Cheapest returns the candidate of a sample whose loss is least: others the next time. loss also reports whether a
// candidate may go at all. If none of the sample may, the others are asked; ok is false if none may.
func (c *Candidates[T]) Cheapest(loss func(T) (loss float64, may bool)) (best T, ok bool) {
	least := 0.0
	for i := range c.items {
		if i >= sample && ok {
			break
		}
		c.next = (c.next + stride) % uint64(len(c.items))
		x := c.items[c.next]
		if l, may := loss(x); may && (!ok || l < least) {
			best, least, ok = x, l, true
		}
	}
	return best, ok
}
