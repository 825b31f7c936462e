package mmcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/turn"
)

// Begin starts a request. No other with its id may be open. wants are its items in
// the order of their prompt positions; none of them is evicted for another. Begin
// waits until the bytes that they may take fit into Options.InFlight, or ctx ends;
// items that are cached take none, and a request that takes none does not wait. A
// smaller request may pass one that waits, but can't keep it waiting for ever.
//
// Errors: [WaitError] when ctx ends; [TooLargeError] for a request that never fits;
// [ErrInvalid]; [ErrClosed].
func (c *Cache) Begin(ctx context.Context, id string, wants ...Want) (*Request, error) {
	r := &Request{c: c, id: id, running: 1, children: 1, byKey: make(map[string]*slot, len(wants)), sending: turn.New()}
	for _, w := range wants {
		if w.Key == "" {
			return nil, fmt.Errorf("%w: Want without a Key; see package mmhash", ErrInvalid)
		}
		if w.Bytes < 0 {
			return nil, fmt.Errorf("%w: Want.Bytes %d of key %q", ErrInvalid, w.Bytes, w.Key)
		}
		s := r.byKey[w.Key]
		if s == nil {
			s = &slot{key: w.Key, modality: w.Modality, tenant: w.Tenant, turn: make(chan struct{}, 1), charge: w.Bytes}
			if s.charge == 0 {
				s.charge = c.o.MaxItem
			}
			r.byKey[w.Key] = s
		}
		s.places++
		r.wants = append(r.wants, s)
	}
	if err := c.register(r); err != nil {
		return nil, err
	}
	if err := c.enter(ctx, id); err != nil {
		c.remove(r)
		return nil, err
	}
	err := r.claimMemory(ctx)
	if err == nil {
		err = c.open(r)
	}
	if err != nil {
		r.leave()
		return nil, err
	}
	for _, s := range r.byKey {
		if s.entry != nil {
			c.countQuery(s, true)
		}
	}
	return r, nil
}

// claimMemory waits for the memory of what is not cached.
func (r *Request) claimMemory(ctx context.Context) error {
	c := r.c
	// What is cached stays from now on, and needs no budget. Only then it is
	// waited for, and nobody with a budget waits for what is held here.
	var total int64
	for _, s := range r.byKey {
		if e, ok := c.back.find(s.key); ok {
			s.entry, s.charge = e, s.needs(e)
		}
		total += min(s.charge, math.MaxInt64-total)
	}
	if total > c.o.InFlight {
		return &TooLargeError{Bytes: total, Limit: c.o.InFlight}
	}
	claim, waited, err := c.budget.acquire(ctx, c.stopped, total)
	if waited > 0 {
		c.count(func(st *Stats) { st.Waits++; st.Waited += waited })
	}
	if err != nil {
		if c.stopped.Err() != nil {
			return errStopped(r.id)
		}
		if w := (*WaitError)(nil); errors.As(err, &w) {
			w.Request = r.id
		}
		return err
	}
	r.claim = claim
	if waited > 0 {
		r.lookAgain()
	}
	return nil
}

func errStopped(id string) error {
	return fmt.Errorf("%w, or shutting down: request %q can't begin", ErrClosed, id)
}

// register makes a request known that waits to begin.
func (c *Cache) register(r *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Err() != nil {
		return errStopped(r.id)
	}
	if other, ok := c.ids[r.id]; ok {
		return fmt.Errorf("%w: request %q is open already (begun %v ago); end it, or choose another id", ErrInvalid, r.id, ago(other.since))
	}
	c.ids[r.id], c.requests[r] = r, struct{}{}
	r.since = time.Now()
	return nil
}

// open begins a request that has all it waited for.
func (c *Cache) open(r *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errStopped(r.id)
	}
	r.become(open)
	c.stats.Begun++
	return nil
}

// remove forgets a request of which nothing is open any more.
func (c *Cache) remove(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[r.id] == r {
		delete(c.ids, r.id)
	}
	delete(c.requests, r)
}

// enter passes the gate.
func (c *Cache) enter(ctx context.Context, id string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("mmcache: nothing was begun: %w", err)
	}
	err := c.pass(ctx, c.stopped, 1)
	if c.stopped.Err() != nil {
		if err == nil {
			c.gate.Release(1)
		}
		return errStopped(id)
	}
	if err != nil {
		return &WaitError{For: WaitClear, Request: id, Err: ctx.Err()}
	}
	return nil
}

// lookAgain gives slots what was cached while the request waited.
func (r *Request) lookAgain() {
	for _, s := range r.byKey {
		if s.entry != nil {
			continue
		}
		if e, ok := r.c.back.find(s.key); ok {
			r.keep(s, e)
		}
	}
}
