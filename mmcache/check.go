package mmcache

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/invariants"
)

// mostChecked is how large what is checked after every change may be. Larger caches are
// checked now and then only, since a check goes through all of it.
const mostChecked = 64

// checkNow reports whether a change of n requests, claims or items is to be checked. It
// never is in a production build.
func checkNow(n int) bool {
	return invariants.Enabled && (n <= mostChecked || invariants.Sometimes(1))
}

func (c *cache) CheckStructure() error {
	return errors.Join(c.backend.check(), c.budget.check(), c.checkRequests())
}

// checkRequests verifies that the counts agree with the requests that are open.
func (c *cache) checkRequests() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkRequestsLocked()
}

func (c *cache) checkRequestsLocked() error {
	var begun, named int64
	for r := range c.requests.all {
		state := r.stateNow()
		if state == open || state == committed {
			begun++
		}
		if state < ended {
			named++
		}
	}
	var errs []error
	if n := c.stats.open(); n != begun {
		errs = append(errs, fmt.Errorf("mmcache: %d requests are open, %d are counted", begun, n))
	}
	if named != int64(len(c.ids)) {
		errs = append(errs, fmt.Errorf("mmcache: %d requests have not ended, %d ids are taken", named, len(c.ids)))
	}
	return errors.Join(errs...)
}

// checkChange checks the requests after one of them has changed. c.mu is held.
func (c *cache) checkChange() {
	if checkNow(c.requests.n) {
		invariants.Must(c.checkRequestsLocked())
	}
}

// leadsTo reports whether a request may come from one state to another, see [state].
func (s state) leadsTo(next state) bool {
	switch next {
	case open:
		return s == waiting
	case committed:
		return s == open
	case ended, abandoned:
		return s == open || s == committed
	}
	return false
}

func (r *Request) checkBecomes(s state) {
	if invariants.Enabled && !r.state.leadsTo(s) {
		invariants.Must(fmt.Errorf("mmcache: request %q came from %s to %s", r.id, r.state, s))
	}
}

// checkRunning checks that no more calls have left a request than entered it. r.mu is
// held.
func (r *Request) checkRunning() {
	if invariants.Enabled && r.running < 0 {
		invariants.Must(fmt.Errorf("mmcache: request %q was left more often than entered", r.id))
	}
}

// checkLeft checks that a request of which no call runs any more holds nothing.
func (r *Request) checkLeft() {
	if !invariants.Enabled || r.claim == nil {
		return
	}
	if n := r.c.budget.holds(r.claim); n != 0 {
		invariants.Must(fmt.Errorf("mmcache: request %q has ended and holds %d bytes", r.id, n))
	}
}

// checkCharge checks that an item has not given back more than it was charged.
func (r *Request) checkCharge(w *wanted) {
	if invariants.Enabled && w.charge < 0 {
		invariants.Must(fmt.Errorf("mmcache: item %q of request %q is charged %d bytes", w.key, r.id, w.charge))
	}
}

// checkEnd checks a build that is about to end. f.mu is held.
func (f *builds) checkEnd(key string, b *build, e entry, err error) {
	switch {
	case !invariants.Enabled:
	case !b.detached && f.byKey[key] != b:
		invariants.Must(fmt.Errorf("mmcache: the build of %q was not known", key))
	case e.exists() == (err != nil):
		invariants.Must(fmt.Errorf("mmcache: the build of %q ends with an item: %t, and with the error: %v",
			key, e.exists(), err))
	}
}
