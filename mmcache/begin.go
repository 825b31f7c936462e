package mmcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/turn"
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
	r := &Request{c: c, id: id, running: 1, children: 1, byKey: make(map[string]*wanted, len(wants)), sending: turn.New()}
	for _, w := range wants {
		if err := r.want(w); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Err() != nil {
		return nil, errStopped(id)
	}
	if other, ok := c.ids[id]; ok {
		return nil, fmt.Errorf("%w: request %q is open already (begun %v ago); end it, or choose another id", errInvalid, id, ago(other.since))
	}
	c.ids[id], c.requests[r] = r, struct{}{}
	r.since = time.Now()
	c.checkChange()
	return r, nil
}

// want adds an item to a request.
func (r *Request) want(w Want) error {
	if w.Key == "" {
		return fmt.Errorf("%w: Want without a Key; see package mmhash", errInvalid)
	}
	if w.Bytes < 0 {
		return fmt.Errorf("%w: Want.Bytes %d of key %q", errInvalid, w.Bytes, w.Key)
	}
	i := r.byKey[w.Key]
	if i == nil {
		i = &wanted{key: w.Key, modality: w.Modality, tenant: w.Tenant, turn: make(chan struct{}, 1), charge: w.Bytes}
		if i.charge == 0 {
			i.charge = r.c.o.MaxItem
		}
		r.byKey[w.Key] = i
	}
	i.places++
	r.wants = append(r.wants, i)
	return nil
}

// remove forgets a request of which nothing is open any more.
func (c *cache) remove(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[r.id] == r {
		delete(c.ids, r.id)
	}
	delete(c.requests, r)
	c.checkChange()
}

// begin begins a request that has entered the gate, which it leaves if that fails.
func (r *Request) begin(ctx context.Context) (*Request, error) {
	c := r.c
	var err error
	if r.tx, err = c.backend.begin(r.id); err != nil {
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
	for _, w := range r.byKey {
		if w.entry != nil {
			c.countQuery(w, true)
		}
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
	for _, w := range r.byKey {
		total += min(w.charge, math.MaxInt64-total)
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
	for _, w := range r.byKey {
		if w.entry != nil {
			continue
		}
		if e, ok := r.tx.find(w.key); ok {
			r.keep(w, e)
		}
	}
}

// open opens a request that has all it waited for.
func (r *Request) open() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.done.Err() != nil {
		return errStopped(r.id)
	}
	r.become(open)
	r.c.stats.Begun++
	r.c.checkChange()
	return nil
}
