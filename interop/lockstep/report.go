package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

type counts struct {
	Mode     string `json:"mode"`
	Release  string `json:"release"`
	Requests int64  `json:"requests"` // served
	Items    int64  `json:"items"`
	Hits     int64  `json:"hits"` // items sent without data
	Evicted  int64  `json:"evictions"`
	Oversize int64  `json:"oversize"` // items passed on uncached
	Clears   int64  `json:"clears"`
	Renewed  int64  `json:"invalidations"`
	Needed   int64  `json:"needed_data"` // sent again because the peer would not have it

	Compared    int64 `json:"orders_compared"`
	Differences int64 `json:"differences"` // of orders and sizes
	Failed      int64 `json:"failed"`      // requests

	RefusedLarge int64 `json:"refused_too_large"`
	RefusedGhost int64 `json:"refused_ghost"`

	Drops       int64 `json:"drops"`
	Swaps       int64 `json:"swaps"`
	Restarts    int64 `json:"restarts"`
	Misses      int64 `json:"misses"`       // answers that items are missing
	MissedAgain int64 `json:"missed_again"` // of these, to a request that was sent again
	Resends     int64 `json:"resends"`

	Unsized int64 `json:"unsized"`

	Seconds float64 `json:"seconds"`
}

type report struct {
	mu sync.Mutex
	counts
	started time.Time
	printed int
}

func (r *report) count(f func(c *counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.counts)
}

// print prints the first few findings; the counts are there for the rest.
func (r *report) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.printed++; r.printed <= 5 {
		fmt.Fprintf(os.Stderr, "lockstep: "+format+"\n", args...)
	}
}

func (r *report) differs(format string, args ...any) {
	r.count(func(c *counts) { c.Differences++ })
	r.print(format, args...)
}

func (r *report) fails(format string, args ...any) {
	r.count(func(c *counts) { c.Failed++ })
	r.print(format, args...)
}

func (r *report) verdict() error {
	if r.Differences+r.Failed != 0 {
		return fmt.Errorf("%d differences, %d failed requests", r.Differences, r.Failed)
	}
	if r.Requests+r.RefusedLarge+r.RefusedGhost == 0 || r.Compared == 0 {
		return fmt.Errorf("nothing was compared")
	}
	return nil
}
