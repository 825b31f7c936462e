package registry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// maxInterest are the objects that a process may wait for at a time: a quarter of those that a store
// brings by default, so that one process leaves room to others. In a small memory they are a quarter
// of its objects.
const maxInterest = 1 << 14

// interest are the objects that a process was told are pending, and until when the store believes that
// somebody waits for them: tier.Store.InterestTime after the last Pin. A lease that has nothing stays as long.
// Guarded by the lock of the registry.
type interest struct {
	until map[tier.Key]time.Time
	swept time.Time
}

// add notes that a process waits for an object, unless there are too many.
func (w *interest) add(k tier.Key, now, until time.Time, most int) bool {
	if _, has := w.until[k]; !has && len(w.until) >= most && !w.sweep(now, until) {
		return false
	}
	if w.until == nil {
		w.until = map[tier.Key]time.Time{}
	}
	w.until[k] = until
	return true
}

// sweep drops interest that has expired, not more often than once in a second. last is until when interest
// lasts that begins now. sweep reports whether there is room now.
func (w *interest) sweep(now, last time.Time) bool {
	if since := now.Sub(w.swept); since >= 0 && since < time.Second {
		return false
	}
	w.swept = now
	before := len(w.until)
	for k, until := range w.until {
		if !now.Before(until) || until.After(last) { // or the clock was set back
			delete(w.until, k)
		}
	}
	return len(w.until) < before
}

// noteInterest notes which objects are pending, and refuses those that are too many for one process: the
// store forgets them. A prefix ends with the first of them.
func (l *lease) noteInterest(keys []tier.Key, placed []tier.Placed, prefix bool) []tier.Placed {
	r := l.s.registry
	now := r.now()
	until := now.Add(r.store.InterestTime())
	var refused []tier.Key
	r.mu.Lock()
	w := &l.s.client.interest
	for i := range placed {
		switch k := keys[i]; {
		case !errors.Is(placed[i].Err, tier.ErrPending):
			delete(w.until, k)
		case w.add(k, now, until, r.maxInterest):
			l.interest = until
		default:
			placed[i] = tier.Placed{
				Err: fmt.Errorf("object %v is on its way, and so are %d others that the process wants; ask again later: %w", k, len(w.until), tier.ErrFull),
			}
			refused = append(refused, k)
		}
	}
	r.mu.Unlock()
	if len(refused) > 0 {
		l.t.Unpin(refused)
		if prefix {
			placed = placed[:slices.Index(keys, refused[0])+1]
		}
	}
	return placed
}

// dropInterest drops interest that was given up.
func (l *lease) dropInterest(keys []tier.Key) {
	r := l.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		delete(l.s.client.interest.until, k)
	}
}
