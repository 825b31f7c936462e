package mmcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/invariants"
)

// budget bounds the bytes that requests hold. A claim gets all of its bytes at
// once, or waits. Claims are served in the order in which they came, but for one
// rule: a later claim that fits passes those that wait if
//
//   - what later claims hold then still leaves room for the first in line, so that
//     it holds nobody up; or
//   - the bytes that did hold up the first in line are, with these, no more than
//     the limit.
//
// So a claim that waits is first in line some day, and has its bytes once what was
// there before, and at most the limit once more, has been given back.
type budget struct {
	limit int64

	mu       sync.Mutex
	used     int64
	arrivals uint64
	line     []*claim            // that wait, in the order in which they came
	held     map[*claim]struct{} // that have bytes
	later    int64               // bytes of those that came after the first in line
}

// claim is what one request may hold.
type claim struct {
	arrival uint64
	bytes   int64
	passed  int64         // bytes that held this claim up while it was the first in line
	ready   chan struct{} // closed when a claim that waits has its bytes
}

func newBudget(limit int64) *budget { return &budget{limit: limit, held: map[*claim]struct{}{}} }

// acquire returns a claim that has its bytes. A claim of no bytes never waits. When
// ctx or stop ends first the error is a [WaitError] without the request.
func (b *budget) acquire(ctx, stop context.Context, bytes int64) (c *claim, waited time.Duration, err error) {
	b.mu.Lock()
	b.arrivals++
	c = &claim{arrival: b.arrivals, bytes: bytes}
	if b.fits(c) {
		b.take(c)
		b.checkChange()
		b.mu.Unlock()
		return c, 0, nil
	}
	c.ready = make(chan struct{})
	b.line = append(b.line, c)
	if len(b.line) == 1 {
		b.first()
	}
	b.checkChange()
	b.mu.Unlock()
	start := time.Now()
	select {
	case <-c.ready:
	case <-ctx.Done():
		err = b.giveUp(c, ctx.Err())
	case <-stop.Done():
		err = b.giveUp(c, stop.Err())
	}
	waited = max(time.Since(start), 1)
	if err != nil {
		return nil, waited, err
	}
	return c, waited, nil
}

// giveUp takes a claim out of the line, unless it has its bytes by now.
func (b *budget) giveUp(c *claim, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.line, c)
	if i < 0 {
		return nil
	}
	err := &WaitError{
		For: forMemory, Need: c.bytes, InUse: b.used, Limit: b.limit, Holders: len(b.held), Ahead: i, Err: cause,
	}
	b.line = slices.Delete(b.line, i, i+1)
	if i == 0 {
		b.first()
		b.serve()
	}
	b.checkChange()
	return err
}

// fits reports whether a claim may have its bytes now.
func (b *budget) fits(c *claim) bool {
	switch {
	case c.bytes == 0:
		return true
	case c.bytes > b.limit-b.used:
		return false
	case len(b.line) == 0 || b.line[0] == c:
		return true
	}
	return !b.holdsUp(c) || c.bytes <= b.limit-b.line[0].passed
}

// holdsUp reports whether a later claim takes what the first in line will need.
func (b *budget) holdsUp(c *claim) bool { return b.later+c.bytes > b.limit-b.line[0].bytes }

func (b *budget) take(c *claim) {
	if c.bytes == 0 {
		return
	}
	if len(b.line) > 0 { // all of whom came earlier
		if b.holdsUp(c) {
			b.line[0].passed += c.bytes
		}
		b.later += c.bytes
	}
	b.used += c.bytes
	b.held[c] = struct{}{}
}

// first accounts for a new first in line.
func (b *budget) first() {
	b.later = 0
	if len(b.line) == 0 {
		return
	}
	for c := range b.held {
		if c.arrival > b.line[0].arrival {
			b.later += c.bytes
		}
	}
}

// serve gives bytes to all who may have them now.
func (b *budget) serve() {
	for i := 0; i < len(b.line) && b.used < b.limit; {
		c := b.line[i]
		if !b.fits(c) {
			i++
			continue
		}
		b.line = slices.Delete(b.line, i, i+1)
		if i == 0 {
			b.used += c.bytes
			b.held[c] = struct{}{}
			b.first()
		} else {
			b.take(c)
		}
		close(c.ready)
	}
}

// release gives back bytes of a claim.
func (b *budget) release(c *claim, bytes int64) {
	if bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.bytes -= bytes
	b.used -= bytes
	if c.bytes == 0 {
		delete(b.held, c)
	}
	if len(b.line) > 0 && c.arrival > b.line[0].arrival {
		b.later -= bytes
	}
	b.serve()
	b.checkChange()
}

// holds returns the bytes of a claim.
func (b *budget) holds(c *claim) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.bytes
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// check verifies what holds between calls.
func (b *budget) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checkLocked()
}

// checkChange is check after a change. b.mu is held.
func (b *budget) checkChange() {
	if checkNow(len(b.held) + len(b.line)) {
		invariants.Must(b.checkLocked())
	}
}

func (b *budget) checkLocked() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("mmcache: budget: "+format, args...)) }
	var used, later int64
	for c := range b.held {
		if c.bytes <= 0 {
			bad("a claim holds %d bytes", c.bytes)
		}
		used += c.bytes
		if len(b.line) > 0 && c.arrival > b.line[0].arrival {
			later += c.bytes
		}
	}
	if used != b.used || b.used > b.limit || b.used < 0 {
		bad("claims hold %d bytes, %d are in use of %d", used, b.used, b.limit)
	}
	if len(b.line) > 0 && later != b.later {
		bad("later claims hold %d bytes, %d are accounted", later, b.later)
	}
	for i, c := range b.line {
		if b.fits(c) {
			bad("the claim at place %d of the line waits for %d bytes, which are free", i, c.bytes)
		}
		if i > 0 && c.arrival < b.line[i-1].arrival {
			bad("the claim at place %d of the line came before the one in front of it", i)
		}
		if c.passed > b.limit {
			bad("the claim at place %d was held up by %d bytes, of at most %d", i, c.passed, b.limit)
		}
	}
	return errors.Join(errs...)
}
