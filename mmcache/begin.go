package mmcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

func (c *cache) Begin(ctx context.Context, id string, wants ...Want) (*Request, error) {
	r, err := c.register(id, wants)
	if err != nil {
		return nil, err
	}
	if err := c.enter(ctx, id); err != nil {
		c.remove(r)
		return nil, err
	}
	return r.begin(ctx)
}

// register makes a request that has yet to begin.
func (c *cache) register(id string, wants []Want) (*Request, error) {
	r := newRequest(len(wants))
	r.c, r.id, r.running, r.children, r.tx.transactor = c, id, 1, 1, c.backend
	for i := range wants {
		if err := r.want(wants[i]); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Err() != nil {
		return nil, errStopped(id)
	}
	r.since = c.now()
	if other, ok := c.ids[id]; ok {
		other.mu.Lock()
		defer other.mu.Unlock()
		return nil, fmt.Errorf("%w: request %q is open already (begun %v ago); end it, or choose another id",
			errInvalid, id, (r.since - other.since).Round(time.Millisecond))
	}
	c.ids[id] = r
	c.requests.add(r)
	c.checkChange()
	return r, nil
}

// remove forgets a request of which nothing is open any more.
func (c *cache) remove(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[r.id] == r {
		delete(c.ids, r.id)
	}
	c.requests.remove(r)
	c.checkChange()
}

// begin begins a request that has entered the gate, which it leaves if that fails.
func (r *Request) begin(ctx context.Context) (*Request, error) {
	c := r.c
	var err error
	if err = c.backend.begin(&r.tx, r.id); err != nil {
		c.remove(r)
		c.gate.Release(1)
		return nil, err
	}
	if err = r.claimMemory(ctx); err == nil {
		err = r.open()
	}
	if err != nil {
		r.leave()
		return nil, err
	}
	return r, nil
}

// claimMemory waits for the memory of what is not cached.
func (r *Request) claimMemory(ctx context.Context) error {
	c := r.c
	// What is cached stays from now on, and needs no budget. Only then it is
	// waited for, and nobody with a budget waits for what is held here.
	r.findAll()
	var total int64
	for i := range r.items {
		total += min(r.items[i].charge, math.MaxInt64-total)
	}
	if total == 0 {
		return nil // it never waits
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
		r.findAll() // what was cached meanwhile
	}
	return nil
}

// findAll gives the request what is cached.
func (r *Request) findAll() {
	for i := range r.items {
		w := &r.items[i]
		if w.entry.exists() {
			continue
		}
		if e, ok := r.tx.find(&r.tx, w.key); ok {
			r.keep(w, e)
		}
	}
}

// open opens a request that has all it waited for.
func (r *Request) open() error {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done.Err() != nil {
		return errStopped(r.id)
	}
	r.mu.Lock()
	r.become(open)
	r.mu.Unlock()
	c.stats.Begun++
	for i := range r.items {
		if w := &r.items[i]; w.entry.exists() {
			w.found = w.entry.lasts()
			c.query(&c.stats, w, true)
		}
	}
	c.checkChange()
	return nil
}
