package mmcache

import (
	"context"
	"errors"
	"fmt"
)

// obtain finds an item, waits for whoever is making it, or makes it.
func (c *Cache) obtain(ctx context.Context, s *slot) (e *entry, hit bool, err error) {
	if e, ok := c.back.find(s.key); ok {
		return e, true, nil
	}
	e, err = c.produced(ctx, s)
	return e, false, err
}

// produced makes an item, or takes it from another request that does.
func (c *Cache) produced(ctx context.Context, s *slot) (*entry, error) {
	if s.produce == nil {
		return nil, fmt.Errorf("%w: there is no producer for %q", ErrInvalid, s.key)
	}
	for {
		f, lead := c.flying.join(s.key, s.tenant)
		if lead {
			return c.lead(ctx, s, f)
		}
		c.count(func(st *Stats) { st.Coalesced++ })
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, &WaitError{For: WaitItem, Key: s.key, Err: ctx.Err()}
		case <-c.done.Done():
			return nil, fmt.Errorf("%w: item %q was not made", ErrClosed, s.key)
		}
		switch {
		case f.err != nil && f.tenant != s.tenant:
			continue // its text is no business of another tenant's
		case errors.Is(f.err, context.Canceled), errors.Is(f.err, context.DeadlineExceeded), errors.Is(f.err, errPanicked),
			errors.Is(f.err, ErrTooLarge):
			continue // that was the other's affair
		case f.err != nil:
			return nil, f.err
		}
		if e, ok := c.back.find(s.key); ok && (e.item != nil || e.lease != nil) {
			return e, nil
		}
		if e, ok := f.e.shared(); ok && e.size+int64(len(e.updates)) <= s.charge {
			return e, nil
		}
	}
}

// lead makes an item for everyone who joined the flight.
func (c *Cache) lead(ctx context.Context, s *slot, f *flight) (*entry, error) {
	e, err := (*entry)(nil), errPanicked
	defer func() { c.flying.land(s.key, f, e, err) }()
	if cached, ok := c.back.find(s.key); ok && (cached.item != nil || cached.lease != nil) {
		e, err = cached, nil // made between the look and the flight
		return e, nil
	}
	b := &Builder{back: c.back, o: &c.o, key: s.key, tenant: s.tenant, limit: s.charge}
	if c.o.VerifyHits {
		b.check = c.verify
	}
	e, err = b.run(ctx, s.produce)
	c.count(func(st *Stats) {
		switch {
		case err != nil:
			st.ProduceErrors++
		default:
			st.Produced++
			st.refuse(e.cause)
		}
	})
	if err == nil && e.cause != NoCause {
		c.events.emit(Event{Kind: Refused, Key: s.key, Cause: e.cause})
		c.o.Logger.Debug("item not cached, sent inline", "key", s.key, "bytes", e.size, "cause", e.cause.String())
	}
	return e, err
}
