package tier

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// answer replaces the misses of memory by what they mean for the store: ErrPending, if a fetch is under way
// or was begun. It notes what the lease has pinned. With prefix, it stops at the first miss, and returns the
// number of answers up to it.
func (f *fetcher) answer(lease string, keys []Key, placed []Placed, prefix bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	var begun []*fetch
	var absent []Key
	n := len(placed)
	for i := range placed {
		k := keys[i]
		switch err := placed[i].Err; {
		case err == nil:
			if !prefix {
				f.promoted.removeLease(lease, k)
			}
			continue
		case errors.Is(err, ErrPending):
			if x := f.fetches[k]; x != nil {
				f.addInterest(x, lease, now)
				continue
			}
			// If it is not pending any more, a fetch of it has ended since memory was asked.
			if now := f.memory.Stat(context.Background(), keys[i:i+1])[0]; errors.Is(now.Err, ErrPending) {
				placed[i].Err = fmt.Errorf("%w: %w", ErrReserved, err)
				absent = append(absent, k)
			}
			continue
		case errors.Is(err, ErrNotFound):
			var x *fetch
			if x, placed[i].Err = f.answerMiss(lease, k, now); x != nil {
				x.order = i
				begun = append(begun, x)
			} else if !errors.Is(placed[i].Err, ErrPending) {
				absent = append(absent, k)
			}
		}
		if prefix && !errors.Is(placed[i].Err, ErrPending) {
			n = i + 1
			break
		}
	}
	f.enqueueLookup(begun, absent, urgent, prefix)
	return n
}

// pinned notes that a lease has pinned objects, so that no pin is needed for it any more.
func (f *fetcher) pinned(lease string, keys []Key, placed []Placed) {
	if f.promoted.size.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range placed {
		if placed[i].Err == nil {
			f.promoted.removeLease(lease, keys[i])
		}
	}
}

// answerMiss answers a lease for one key that is not in memory. A fetch that it began is to be queued.
func (f *fetcher) answerMiss(lease string, k Key, now time.Time) (begun *fetch, err error) {
	if x := f.interest[lease][k]; x != nil && x.finished {
		f.removeInterest(lease, k) // the lease hears of the answer now
		return nil, x.err
	}
	if x := f.fetches[k]; x != nil && !x.deleted {
		f.addInterest(x, lease, now)
		return nil, errPending(k)
	}
	if err := f.negative.get(k); err != nil {
		return nil, err
	}
	if err := f.admit(k); err != nil {
		return nil, err
	}
	x := f.newFetch(k)
	f.addInterest(x, lease, now)
	return x, errPending(k)
}

// admit reports why no fetch of a key can begin now.
func (f *fetcher) admit(k Key) error {
	switch {
	case k.Validate() != nil:
		return k.Validate()
	case f.stopped:
		return errClosedStore()
	case f.blocked[k] > 0 || f.fetches[k] != nil: // a deletion waits for the fetch
		return fmt.Errorf("tier: object %v is being deleted: %w", k, ErrNotFound)
	case len(f.fetches) >= f.options.MaxFetches:
		return fmt.Errorf("tier: object %v: %d objects are being fetched, the most is %d (Options.MaxFetches): %w",
			k, len(f.fetches), f.options.MaxFetches, ErrFull)
	}
	for _, l := range f.lower {
		if !l.health.isAway() {
			return nil
		}
	}
	if len(f.lower) > 0 {
		return fmt.Errorf("tier: object %v: %w in memory, and all lower levels are away: %w",
			k, ErrNotFound, ErrUnavailable)
	}
	return errNowhere(k)
}

// errPending is the answer about an object that is being fetched.
func errPending(k Key) error { return fmt.Errorf("tier: object %v: %w", k, ErrPending) }
