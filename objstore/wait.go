package objstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/serde"
)

// signal wakes whoever waits for room or for a key.
func (w *Writer) signal() {
	if w.change != nil {
		close(w.change)
		w.change = nil
	}
}

// pollReads is how often waiting looks at the readers' counts, of which nobody is
// told.
const pollReads, maxPollReads = 5 * time.Millisecond, 80 * time.Millisecond

// await waits for a change of the store after try failed in a way that may
// change, until ctx ends.
func (w *Writer) await(ctx context.Context, try func() error, passing error) error {
	for poll := pollReads; ; poll = min(2*poll, maxPollReads) {
		w.mu.Lock()
		if w.change == nil {
			w.change = make(chan struct{})
		}
		change := w.change
		w.mu.Unlock()
		err := try()
		if !errors.Is(err, passing) {
			return err
		}
		timer := time.NewTimer(poll)
		select {
		case <-change:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w, while waiting: %w", ctx.Err(), err)
		}
		timer.Stop()
	}
}

// PutContext is Put that waits for room until ctx ends; its error is then both
// ctx's and a [FullError].
func (w *Writer) PutContext(ctx context.Context, key string, v serde.Value, o PutOptions) (h Handle, err error) {
	err = w.await(ctx, func() error {
		h, err = w.put(key, v, o)
		return err
	}, ErrFull)
	return h, err
}

// ReserveContext is ReserveWith that waits for room until ctx ends; its error is
// then both ctx's and a [FullError].
func (w *Writer) ReserveContext(ctx context.Context, key string, v serde.Value, o PutOptions) (r *Reservation, err error) {
	err = w.await(ctx, func() error {
		r, err = w.ReserveWith(key, v, o)
		return err
	}, ErrFull)
	return r, err
}

// Obtain returns a lease of the object under a key if it is there; a reservation
// if it is not, which the caller fills and commits for everyone; and while someone
// else has the reservation it waits, until ctx ends. So one caller produces, and
// the others get what it made, or take its place if it gave up. Exactly one of
// lease and reservation is not nil when err is.
func (w *Writer) Obtain(ctx context.Context, key string, layout serde.Value, o PutOptions) (l *Lease, r *Reservation, err error) {
	err = w.await(ctx, func() error {
		if l, err = w.Lease(key); err == nil || !errors.Is(err, ErrNotFound) {
			return err
		}
		r, err = w.ReserveWith(key, layout, o)
		return err
	}, ErrKeyExists)
	return l, r, err
}
