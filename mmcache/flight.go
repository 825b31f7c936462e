package mmcache

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// flights are the items that are being made (single flight): one request makes an
// item, others that want it wait for that.
type flights struct {
	mu    sync.Mutex
	byKey map[string]*flight
}

type flight struct {
	tenant string // of the leader, the request that makes the item
	left   bool   // nobody joins any more; guarded by the lock of flights
	done   chan struct{}

	// The leader's, set when done is closed.
	entry entry
	err   error
}

// join returns the flight of a key. If leads is true the caller has to make the item,
// and to call land.
func (f *flights) join(key, tenant string) (fl *flight, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.byKey[key]; ok {
		return fl, false
	}
	if f.byKey == nil {
		f.byKey = map[string]*flight{}
	}
	fl = &flight{tenant: tenant, done: make(chan struct{})}
	f.byKey[key] = fl
	return fl, true
}

// leave makes the flight of a key go on without anyone new: its item was invalidated after it was
// cached, and before the flight landed.
func (f *flights) leave(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl, ok := f.byKey[key]; ok {
		fl.left = true
		delete(f.byKey, key)
	}
}

// land ends a flight.
func (f *flights) land(key string, fl *flight, e entry, err error) {
	f.mu.Lock()
	f.checkLanding(key, fl, e, err)
	if !fl.left {
		delete(f.byKey, key)
	}
	f.mu.Unlock()
	fl.entry, fl.err = e, err
	close(fl.done)
}

// obtain makes an item, or takes it from another request that makes it.
func (r *Request) obtain(ctx context.Context, w *wanted) (entry, error) {
	if w.produce == nil {
		return entry{}, fmt.Errorf("%w: there is no producer for %q", errInvalid, w.key)
	}
	for {
		f, leads := r.c.flights.join(w.key, w.tenant)
		if leads {
			return r.lead(ctx, w, f)
		}
		r.c.count(func(st *Stats) { st.Coalesced++ })
		select {
		case <-f.done:
		case <-ctx.Done():
			return entry{}, &WaitError{For: forItem, Request: r.id, Key: w.key, Err: ctx.Err()}
		case <-r.c.done.Done():
			return entry{}, fmt.Errorf("%w: item %q was not made", errClosed, w.key)
		}
		switch {
		case f.err != nil && f.tenant != w.tenant:
			continue // its text is no business of another tenant's
		case errors.Is(f.err, context.Canceled), errors.Is(f.err, context.DeadlineExceeded), errors.Is(f.err, errPanicked),
			errors.As(f.err, new(*TooLargeError)):
			continue // that was about the leader
		case f.err != nil:
			return entry{}, f.err
		}
		if e, ok := r.tx.find(&r.tx, w.key); ok && e.lasts() {
			return e, nil
		}
		if e, ok := f.entry.shared(); ok && e.needs(w.charge) <= w.charge {
			return e, nil
		}
	}
}

// lead makes an item for everyone who joined the flight.
func (r *Request) lead(ctx context.Context, w *wanted, f *flight) (e entry, err error) {
	err = errPanicked
	defer func() { r.c.flights.land(w.key, f, e, err) }()
	if e, ok := r.tx.find(&r.tx, w.key); ok && e.lasts() { // made between the look and the flight
		return e, nil
	}
	e, err = r.produce(ctx, w)
	if err != nil {
		r.c.count(func(st *Stats) { st.ProduceErrors++ })
		return entry{}, err
	}
	r.c.count(func(st *Stats) { st.Produced++; st.refuse(e.refused) })
	if e.refused != nil {
		r.c.events.emit(Event{Kind: eventRefused, Key: w.key, Refused: e.refused})
		r.c.o.Logger.Debug("item not cached, sent inline", "key", w.key, "bytes", e.size, "cause", e.refused)
	}
	return e, nil
}

// produce has the producer make an item. It leaves nothing behind on an error or a
// panic.
func (r *Request) produce(ctx context.Context, w *wanted) (entry, error) {
	b := &Builder{tx: &r.tx, wanted: w, python: r.c.o.Python}
	defer b.discard() // does nothing after done
	if err := b.produce(ctx, w.produce); err != nil {
		return entry{}, err
	}
	if r.c.made != nil {
		r.c.verify(b)
	}
	return b.room.done(b)
}
