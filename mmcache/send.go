package mmcache

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/turn"
)

// SetChildren sets the number of children as which the engine will run the request,
// each of which reads every item (sampling with n > 1). In mode shm each item counts
// as used n times. It must be called before Commit, and does nothing later; the
// request ends when all children have.
func (r *Request) SetChildren(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == open && !r.busy {
		r.children = max(n, 1)
	}
}

// Commit works out what goes on the wire and sends it. send must hand the request
// to the engine's queue and return; in mode lru no other request is sent
// meanwhile, so that the engine gets them in order. Its error means that nothing
// was sent: then Commit returns it, and the request is open as before.
//
// Every item must have been obtained. In mode lru items that the engine dropped in
// the meantime are made again first, with ctx.
//
// From within send anything may be called that does not send: Finish, Abort and
// Rollback of this request then take effect when send has returned. In mode lru
// Commit, Missed and Clear fail there with [fs.ErrInvalid].
//
// Errors: send's; [WaitError] when ctx ends while another request is being sent;
// [fs.ErrInvalid]; [ErrEnded]; [fs.ErrClosed].
func (r *Request) Commit(ctx context.Context, send func(Batch) error) error {
	return r.send(ctx, "Commit", open, send, func() error {
		for _, w := range r.places {
			if !w.entry.exists() {
				return fmt.Errorf("%w: Commit without item %q", errInvalid, w.key)
			}
		}
		if err := r.tx.commit(ctx, r, send); err != nil {
			return err
		}
		r.sent()
		return nil
	})
}

// sent is called when the request was sent for the first time.
func (r *Request) sent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == open {
		r.become(committed)
	} else { // it was abandoned, and sent all the same
		r.how = abort
	}
	r.c.committed.Add(1)
}

// send runs f, which sends the request, in one of two states.
func (r *Request) send(ctx context.Context, what string, from state, send func(Batch) error, f func() error) error {
	if send == nil {
		return fmt.Errorf("%w: the send of %s is nil", errInvalid, what)
	}
	began := false
	err := r.sending.Do(ctx, r.c.done.Done(), func() error {
		began = true
		if err := r.enterSend(from); err != nil {
			return err
		}
		defer r.leaveSend()
		return f()
	})
	switch {
	case began:
	case errors.Is(err, turn.ErrHeld):
		return fmt.Errorf("%w: %s of request %q from within its own send", errInvalid, what, r.id)
	default:
		err = &WaitError{For: forSend, Request: r.id, Err: err}
	}
	if r.c.done.Err() != nil && errors.As(err, new(*WaitError)) {
		return fmt.Errorf("%w: the cache was abandoned", errClosed)
	}
	return err
}

// enterSend is enter of a call that sends.
func (r *Request) enterSend(from state) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.is(from); err != nil {
		return err
	}
	r.running++
	r.busy = true
	return nil
}

// leaveSend is leave of a call that sends. It does what was asked for from within send.
func (r *Request) leaveSend() {
	r.mu.Lock()
	later := r.later
	r.busy, r.later = false, nil
	r.mu.Unlock()
	for _, how := range later {
		r.warn(r.endNow(how))
	}
	r.leave()
}
