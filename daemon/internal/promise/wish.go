package promise

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

const (
	// wished is how long a lease that has nothing stays because of what was pending: the store believes it that long.
	wished = 10 * time.Second
	// mostWishes are the objects that a process may have pending at a time: a quarter of those that a store brings by
	// default, so that one process leaves room to others. In a small memory they are a quarter of its objects.
	mostWishes = 1 << 14
)

// wishes are the objects that a process was told are pending, and until when the store believes that somebody wants them. Guarded by
// the lock of the book.
type wishes struct {
	until map[tier.Key]time.Time
	swept time.Time
}

// add notes a wish, unless there are too many.
func (w *wishes) add(k tier.Key, now time.Time, most int) bool {
	if _, has := w.until[k]; !has && len(w.until) >= most && !w.sweep(now) {
		return false
	}
	if w.until == nil {
		w.until = map[tier.Key]time.Time{}
	}
	w.until[k] = now.Add(wished)
	return true
}

// sweep drops wishes that nobody believes any more, not more often than once in a second. It reports whether there is room now.
func (w *wishes) sweep(now time.Time) bool {
	if since := now.Sub(w.swept); since >= 0 && since < time.Second {
		return false
	}
	w.swept = now
	before := len(w.until)
	for k, until := range w.until {
		if !now.Before(until) || until.Sub(now) > wished { // or the clock was set back
			delete(w.until, k)
		}
	}
	return len(w.until) < before
}

// countWishes notes which objects are pending, and refuses those that are too many for one process: the store forgets them. A
// prefix ends with the first of them.
func (l *lease) countWishes(keys []tier.Key, placed []tier.Placed, prefix bool) []tier.Placed {
	c, b := l.s.client, l.s.book
	now := b.now()
	var refused []tier.Key
	b.mu.Lock()
	for i := range placed {
		switch k := keys[i]; {
		case !errors.Is(placed[i].Err, tier.ErrPending):
			delete(c.wishes.until, k)
		case c.wishes.add(k, now, b.mostWishes):
			l.wish = now.Add(wished)
		default:
			placed[i] = tier.Placed{Err: fmt.Errorf("object %v is on its way, and so are %d others that the process wants; ask again later: %w", k, len(c.wishes.until), tier.ErrFull)}
			refused = append(refused, k)
		}
	}
	b.mu.Unlock()
	if len(refused) > 0 {
		l.t.Unpin(refused)
		if prefix {
			placed = placed[:slices.Index(keys, refused[0])+1]
		}
	}
	return placed
}

// forget drops wishes that were given up.
func (c *Client) forget(keys []tier.Key) {
	c.book.mu.Lock()
	defer c.book.mu.Unlock()
	for _, k := range keys {
		delete(c.wishes.until, k)
	}
}
