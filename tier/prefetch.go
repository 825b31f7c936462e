package tier

import (
	"context"
	"errors"
)

// Prefetch fetches objects into memory in the background, those of higher priority first, and all of them
// behind what somebody waits for. It returns at once. The errors, in the order of the keys, are nil of what
// is in memory, ErrPending of what will be fetched, or the answer of Pin. When ctx ends, what nobody else has
// interest in is not fetched any more.
//
// An object that was fetched is pinned for nobody: it may go again for room.
func (s *Store) Prefetch(ctx context.Context, keys []Key, priority int) []error {
	if !s.life.enter() {
		return repeat(len(keys), errClosedStore())
	}
	defer s.life.leave()
	errs := make([]error, len(keys))
	for i, found := range s.memory.Stat(ctx, keys) {
		errs[i] = found.Err
	}
	s.fetcher.prefetch(ctx, keys, min(priority, urgent-1), errs)
	return errs
}

// prefetch begins or joins the fetches of what is not in memory: errs has what memory answered, and gets the
// answers of Prefetch.
func (f *fetcher) prefetch(ctx context.Context, keys []Key, priority int, errs []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var begun, joined []*fetch
	var absent []Key
	for i, k := range keys {
		if !errors.Is(errs[i], ErrNotFound) {
			if errs[i] != nil {
				absent = append(absent, k)
			}
			continue
		}
		x := f.fetches[k]
		switch miss := f.negative.get(k); {
		case x != nil && !x.deleted:
			f.queue.raise(x.job, priority)
		case miss != nil:
			errs[i] = miss
			absent = append(absent, k)
			continue
		default:
			if errs[i] = f.admit(k); errs[i] != nil {
				absent = append(absent, k)
				continue
			}
			x = f.newFetch(k)
			x.order = i
			begun = append(begun, x)
		}
		x.waiters++
		joined = append(joined, x)
		errs[i] = errPending(k)
	}
	f.enqueueLookup(begun, absent, priority, false)
	if ctx.Done() != nil && len(joined) > 0 {
		f.life.Go(func() { f.endInterestWith(ctx, joined) })
	}
}

// endInterestWith waits until fetches are finished, and ends the interest of a prefetch in them if its
// context ends before.
func (f *fetcher) endInterestWith(ctx context.Context, fetches []*fetch) {
	for _, x := range fetches {
		select {
		case <-x.done:
			continue
		case <-ctx.Done():
		case <-f.life.ctx.Done():
			return
		}
		break
	}
	if ctx.Err() == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range fetches {
		if !x.finished {
			f.removeWaiter(x)
		}
	}
}
