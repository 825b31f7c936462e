package fair

import (
	"slices"
	"sync"
)

// Budget is a number of bytes that processes acquire and release.
//
// A process that holds nothing may acquire whatever is free. A process that holds something
// may acquire more only if at least as much as it then holds stays free for others: alone it
// may hold half, beside one other process a third, and so on.
//
// Callers that wait are served by process, in turns. A large request that waits keeps others
// from overtaking it, so it is not starved. To keep small requests from waiting behind large
// ones, a quarter of the budget is set apart: large requests, of more than a sixteenth of the
// budget, leave it free unless nobody holds anything, and while a large request waits, a
// process that holds nothing may acquire a little from that quarter.
//
// The methods may be called from any goroutine.
// See docs/decisions.md, "Large messages have a budget, small ones always have room".
type Budget struct {
	size int64

	mu     sync.Mutex // guards what follows, and shares
	used   int64
	peak   int64    // of used
	recent int64    // the same since Lately
	apart  int64    // of used: what overtook somebody who waits for much
	queue  []*Share // that wait, the next one in front
}

// NewBudget returns a budget of so many bytes, which are all free.
func NewBudget(size int64) *Budget { return &Budget{size: size} }

// Share is what a process has of a budget. The zero value is nothing. It belongs to one Budget.
type Share struct {
	held  int64
	apart int64 // of held, at most
	line  []*waiter
}

// waiter is a call of Acquire that waits for bytes.
type waiter struct {
	n       int64
	granted chan struct{}
}

// Size returns the bytes of the budget.
func (b *Budget) Size() int64 { return b.size }

// Used returns the bytes that are taken, and the most that ever were.
func (b *Budget) Used() (now, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.peak
}

// Lately returns the most bytes that were taken since the last call.
func (b *Budget) Lately() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.recent
	b.recent = b.used
	return most
}

// Waiting returns how many calls wait for bytes.
func (b *Budget) Waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.queue {
		n += len(s.line)
	}
	return n
}

// TryAcquire takes bytes for a process, if it may have them now.
func (b *Budget) TryAcquire(s *Share, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryAcquire(s, n)
}

// tryAcquire is TryAcquire under the lock.
func (b *Budget) tryAcquire(s *Share, n int64) bool {
	if len(s.line) > 0 || !b.allows(s, n) {
		return false
	}
	most := int64(0) // that somebody waits for
	for _, x := range b.queue {
		if b.starves(x) {
			most = max(most, x.line[0].n)
		}
	}
	return b.grant(s, n, most)
}

// Acquire takes bytes for a process, and waits until it may have them. It reports false if it does not have
// them: done was closed before, or there are never as many.
func (b *Budget) Acquire(done <-chan struct{}, s *Share, n int64) bool {
	b.mu.Lock()
	if n > b.size {
		b.mu.Unlock()
		return false
	}
	if b.tryAcquire(s, n) {
		b.mu.Unlock()
		return true
	}
	w := &waiter{n, make(chan struct{})}
	if s.line = append(s.line, w); len(s.line) == 1 {
		b.queue = append(b.queue, s)
	}
	b.mu.Unlock()
	select {
	case <-w.granted:
		return true
	case <-done:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(s.line, w)
	if i < 0 { // it was granted in the same moment
		return true
	}
	s.line = slices.Delete(s.line, i, i+1)
	if len(s.line) == 0 {
		b.queue = slices.DeleteFunc(b.queue, func(x *Share) bool { return x == s })
	}
	b.serve()
	return false
}

// Release gives bytes back.
func (b *Budget) Release(s *Share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.held -= n
	b.used -= n
	if over := s.apart - s.held; over > 0 {
		s.apart -= over
		b.apart -= over
	}
	b.serve()
}

// quarter is what is set apart.
func (b *Budget) quarter() int64 { return b.size / 4 }

// allows reports whether a process may have so many bytes more, if nobody waits.
func (b *Budget) allows(s *Share, n int64) bool {
	free := b.size - b.used - n // afterwards
	if free < 0 || s.held > 0 && s.held+n > free {
		return false
	}
	return n <= b.size/16 || free >= b.quarter()-b.apart || b.used == b.apart && n > b.size-b.quarter()
}

// starves reports whether somebody waits only because what is free is too little, so that few may overtake.
func (b *Budget) starves(s *Share) bool { return s.held == 0 && !b.allows(s, s.line[0].n) }

// grant takes bytes that are allowed, unless somebody waits for most bytes, more than are free, and these
// would overtake: who has nothing may, with little.
func (b *Budget) grant(s *Share, n, most int64) bool {
	if most > 0 {
		if s.held > 0 || n > (b.quarter()-b.apart)/4 || most > b.size-b.quarter() {
			return false
		}
		s.apart += n
		b.apart += n
	}
	s.held += n
	b.used += n
	b.peak, b.recent = max(b.peak, b.used), max(b.recent, b.used)
	return true
}

// serve gives those that wait what they may have.
func (b *Budget) serve() {
	most := int64(0) // that somebody in front waits for
	for i := 0; i < len(b.queue); {
		s := b.queue[i]
		w := s.line[0]
		switch {
		case b.allows(s, w.n) && b.grant(s, w.n, most):
			s.line = slices.Delete(s.line, 0, 1)
			close(w.granted)
			b.queue = slices.Delete(b.queue, i, i+1)
			if len(s.line) > 0 {
				b.queue = append(b.queue, s)
			}
			continue
		case b.starves(s):
			most = max(most, w.n)
		}
		i++
	}
}
