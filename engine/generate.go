package engine

import (
	"context"
	"errors"

	"github.com/ringcache/ringcache/mmcache"
)

// Generate verifies a request, sends it and returns its stream. The end of ctx
// aborts the request, also later. An error means that nothing was sent, or, if it
// is an [ErrDead], that the engine is gone: Items are as they were. What the
// request points to must not change until Generate has returned.
//
// Errors: [ErrRefused]; [ErrNotRunning], [ErrAsleep], [ErrDead]; ctx's; [fs.ErrClosed]; those
// of mmcache.Request.Commit.
func (c *Client) Generate(ctx context.Context, r Request) (*Stream, error) {
	if _, err := c.running(); err != nil { // before the wait for a barrier, which may be Close's
		return nil, err
	}
	if err := c.gate.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	st, err := c.open(ctx, r)
	if err != nil {
		c.gate.Release(1)
		return nil, err
	}
	if err := st.commit(); err != nil {
		return nil, err
	}
	return st, nil
}

// open makes the stream of a request, which has the gate's share from now on.
func (c *Client) open(ctx context.Context, r Request) (*Stream, error) {
	s, err := c.running()
	if err != nil {
		return nil, err
	}
	children, err := s.verify(&r)
	if err != nil {
		c.count(func(n *Stats) { n.Refused++ })
		return nil, err
	}
	if r.Items != nil && c.mirrored() {
		r = r.clone() // it may be sent again, when the caller has other uses for its slices
	}
	st := s.newStream(ctx, r, children)
	if err := s.register(st); err != nil {
		st.unhook()
		st.cancel(err)
		return nil, err
	}
	c.count(func(n *Stats) { n.InFlight++ })
	return st, nil
}

// commit sends the request. When one child has gone out the request is the engine's,
// and what goes wrong then ends the stream. An error means that the items are the
// caller's. The hold of Generate ends here.
func (st *Stream) commit() error {
	err := errAborted // unless what is called here returns
	defer func() {
		if err != nil {
			st.end(err)
		}
		st.release()
	}()
	if st.req.Items == nil {
		err = st.sendAll(nil)
	} else {
		st.req.Items.SetChildren(len(st.children))
		err = st.req.Items.Commit(st.ctx, func(b mmcache.Batch) error { return st.sendAll(b.Items) })
	}
	switch dead := st.s.deadError(); {
	case err == nil:
		st.committed = true
		if st.req.Items != nil {
			st.s.sent.sweep(st.s.c.o.Cache)
		}
	case dead != nil:
		err = dead
	case st.ctx.Err() != nil:
		err = context.Cause(st.ctx)
	}
	return err
}

// sendAll sends one child after the other: each has the whole prompt. An error means
// that none was sent, or that the engine is gone.
func (st *Stream) sendAll(items []mmcache.Wire) error {
	m, err := st.s.message(&st.req, st.children[0].id, items)
	if err != nil {
		return err
	}
	for i := range st.children {
		err := st.send(i, m)
		if err != nil && (i == 0 || errors.Is(err, ErrDead)) {
			return err
		}
		if err != nil {
			st.end(err) // if that is not why
			break       // the children before it use the items
		}
		if i == 0 {
			st.sent = true
			st.s.c.count(func(n *Stats) { n.Requests++ })
		}
	}
	for i, w := range items {
		st.s.sent.put(w.Key, m.tokens[i])
	}
	return nil
}

// send sends a child, unless the stream has ended.
func (st *Stream) send(i int, m *message) error {
	f, err := m.encoded.Child(i, st.children[i].id)
	if err != nil {
		return st.req.refuse("message", err)
	}
	st.mu.Lock()
	if st.state != streamOpen {
		defer st.mu.Unlock()
		return st.out.last
	}
	childTable.step(&st.children[i].state, childSend) // before the answer can come
	st.mu.Unlock()
	return st.s.send(f)
}
