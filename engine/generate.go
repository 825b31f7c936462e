package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// Generate verifies a request, sends it and returns its stream. The end of ctx
// aborts the request, also later. An error means that nothing was sent, or, if it
// is a [DeadError], that the engine is gone: Items are as they were. What the
// request points to must not change until Generate has returned.
//
// Errors: [RefusedError]; [ErrNotRunning], [ErrAsleep], [DeadError]; ctx's; [ErrClosed]; those
// of mmcache.Request.Commit.
func (c *Client) Generate(ctx context.Context, r Request) (*Stream, error) {
	if _, err := c.awake(); err != nil { // before the wait for a barrier, which may be Close's
		return nil, err
	}
	if err := c.gate.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	s, err := c.awake()
	if err != nil {
		c.gate.Release(1)
		return nil, err
	}
	st, err := s.generate(ctx, r)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// generate owns the gate's share from here on: forget gives it back.
func (s *session) generate(ctx context.Context, r Request) (*Stream, error) {
	if err := s.verify(&r); err != nil {
		s.c.gate.Release(1)
		s.c.count(func(n *Stats) { n.Refused++ })
		return nil, err
	}
	st := s.newStream(r)
	st.mu.Lock() // which abort takes first
	st.stop = context.AfterFunc(ctx, func() { st.abort(context.Cause(ctx)) })
	st.mu.Unlock()
	if err := s.register(st); err != nil {
		st.stop()
		s.c.gate.Release(1)
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // what is called from here panicked
			st.abort(ErrAborted)
			s.forget(st)
		}
	}()
	err := s.commit(ctx, st)
	returned = true
	if err == nil {
		if st.items != nil {
			s.sent.sweep(s.c.o.Cache)
		}
		return st, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if dead := s.deadError(); dead != nil {
		err = dead
	}
	if !st.sent.Load() {
		s.c.count(func(n *Stats) { n.Refused++ })
	}
	st.abort(err) // the items were not committed, and stay the caller's
	s.forget(st)  // again: ctx may have ended before it was registered
	return nil, err
}

// newStream gives a request the ids of its children, which no other has ever had:
// an answer to one that was aborted may still be on its way.
func (s *session) newStream(r Request) *Stream {
	n, _ := r.children() // which verify has looked at
	if r.Items != nil && s.c.mirrored() {
		r = r.clone() // it may be sent again, when the caller has other uses for its slices
	}
	st := &Stream{
		s: s, req: r, items: r.Items, ended: make([]bool, n), live: n, may: s.newAllowance(&r, n), tell: make(chan struct{}, 1),
	}
	base := r.ID + "-" + strconv.FormatUint(s.requests.Add(1), 36)
	for i := range n {
		id := base
		if n > 1 {
			id = fmt.Sprintf("%d_%s", i, base)
		}
		st.ids = append(st.ids, id)
	}
	return st
}

// register enters a stream into the tables.
func (s *session) register(st *Stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead != nil:
		return s.dead
	case s.quitting:
		return ErrClosed
	}
	s.listen()
	for i, id := range st.ids {
		s.streams[id] = place{st, i}
	}
	s.inFlight[st] = struct{}{}
	return nil
}

// commit verifies the items of a request, and sends it, one child after the other:
// each has the whole prompt. When one has gone out the request is the engine's, and
// what goes wrong then ends the stream.
func (s *session) commit(ctx context.Context, st *Stream) error {
	var late error
	send := func(wires []mmcache.Wire) error {
		tokens, err := s.items(&st.req, wires)
		if err != nil {
			return err
		}
		features := st.req.features(wires)
		for i := range st.ids {
			f, err := st.req.message(st.ids, i, features, s.options())
			if err != nil {
				err = st.req.refuse("message", err)
			} else {
				err = st.send(i, f, false)
			}
			if err != nil && (i == 0 || errors.Is(err, ErrDead)) {
				return err
			}
			if late = err; err != nil {
				break // the children before it use the items
			}
		}
		for i, w := range wires {
			s.sent.put(w.Key, tokens[i])
		}
		return nil
	}
	if st.items == nil {
		err := send(nil)
		if late != nil {
			st.abort(late)
		}
		return err
	}
	st.items.SetChildren(len(st.ids))
	ctx, cancel := context.WithCancelCause(ctx) // producers need not go on for an engine that has gone
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(ErrDead) })()
	err := st.items.Commit(ctx, func(b mmcache.Batch) error { return send(b.Items) })
	if late != nil {
		st.abort(late) // which does nothing if that is why it was late
	}
	return err
}

// send sends one message. If it does not arrive for certain the engine is given
// up: it may have got half of it.
func (s *session) send(t serde.MessageType, f serde.Frames) error {
	frames := append([][]byte{t.Frame()}, f...)
	if err := s.input.Send(s.peer, frames...); err != nil {
		s.die(fmt.Errorf("%w (%w)", ErrDisconnected, err))
		return s.deadError()
	}
	return nil
}

// sendAbort tells the engine to stop; it answers nothing.
func (s *session) sendAbort(ids []string) {
	body, err := serde.EncodeAbort(ids)
	if err == nil {
		err = s.send(serde.MessageAbort, serde.Frames{body})
	}
	if err != nil {
		s.c.o.Logger.Debug("abort not sent", "error", err)
	}
}

// forget takes a stream out of the tables.
func (s *session) forget(st *Stream) {
	s.mu.Lock()
	_, known := s.inFlight[st]
	delete(s.inFlight, st)
	for _, id := range st.ids {
		delete(s.streams, id)
	}
	s.mu.Unlock()
	if known {
		s.c.gate.Release(1)
	}
}
