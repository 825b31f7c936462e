package mmcache

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Holder is a request or a hold that is open, so that the cache can't be closed.
type Holder struct {
	ID  string // of a request
	Key string // of a Hold
	// State is what the holder does:
	//
	//	waiting    a request that waits in Begin
	//	begun      a request that was not committed yet
	//	committed  a request that was sent and waits for Finish or Abort
	//	ending     a request that has ended, but for a call of it that still runs
	//	holding    a Hold
	State string
	Since time.Time // when that state began
}

const holding = "holding"

// String is a phrase for the list of a BusyError.
func (h Holder) String() string {
	if h.State == holding {
		return fmt.Sprintf("a hold of item %q (for %v)", h.Key, ago(h.Since))
	}
	return fmt.Sprintf("request %q (%s for %v)", h.ID, h.State, ago(h.Since))
}

func ago(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

func (c *cache) Holders() []Holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Holder, 0, c.requests.n+len(c.holds))
	for r := range c.requests.all {
		r.mu.Lock()
		all = append(all, Holder{ID: r.id, State: r.state.String(), Since: c.opened.Add(r.since)})
		r.mu.Unlock()
	}
	for h := range c.holds {
		all = append(all, Holder{Key: h.Item.Key, State: holding, Since: h.since})
	}
	slices.SortFunc(all, func(a, b Holder) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Key, b.Key))
	})
	return all
}
