package mmcache

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// builds are the items that are being made (single flight): one request makes an
// item, others that want it wait for that.
type builds struct {
	mu    sync.Mutex
	byKey map[string]*build
}

type build struct {
	tenant   string // of the leader, the request that makes the item
	detached bool   // nobody joins any more; guarded by the lock of builds
	done     chan struct{}

	// The leader's, set when done is closed.
	entry entry
	err   error
}

// join returns the build of a key. If leads is true the caller has to make the item,
// and to call end.
func (f *builds) join(key, tenant string) (b *build, leads bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.byKey[key]; ok {
		return b, false
	}
	if f.byKey == nil {
		f.byKey = map[string]*build{}
	}
	b = &build{tenant: tenant, done: make(chan struct{})}
	f.byKey[key] = b
	return b, true
}

// detach makes the build of a key go on without anyone new: its item was invalidated after it was
// cached, and before the build ended.
func (f *builds) detach(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.byKey[key]; ok {
		b.detached = true
		delete(f.byKey, key)
	}
}

// end ends a build.
func (f *builds) end(key string, b *build, e entry, err error) {
	f.mu.Lock()
	f.checkEnd(key, b, e, err)
	if !b.detached {
		delete(f.byKey, key)
	}
	f.mu.Unlock()
	b.entry, b.err = e, err
	close(b.done)
}

// obtain makes an item, or takes it from another request that makes it.
func (r *Request) obtain(ctx context.Context, w *wanted) (entry, error) {
	if w.produce == nil {
		return entry{}, fmt.Errorf("%w: there is no producer for %q", errInvalid, w.key)
	}
	for {
		f, leads := r.c.builds.join(w.key, w.tenant)
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
		case errors.Is(f.err, context.Canceled), errors.Is(f.err, context.DeadlineExceeded),
			errors.Is(f.err, errPanicked), errors.As(f.err, new(*TooLargeError)):
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

// lead makes an item for everyone who joined the build.
func (r *Request) lead(ctx context.Context, w *wanted, f *build) (e entry, err error) {
	err = errPanicked
	defer func() { r.c.builds.end(w.key, f, e, err) }()
	if e, ok := r.tx.find(&r.tx, w.key); ok && e.lasts() { // made between the look and the build
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
