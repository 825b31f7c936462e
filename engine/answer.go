package engine

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// maxResent is how often a child may be sent again, since the engine lacked items
// of it. The second time it has all of them.
const maxResent = 4

// push takes an output of the engine for a child. It never waits: neither for the
// reader, nor for a producer, nor for a send.
func (st *Stream) push(i int, o *enginecore.Output) {
	st.mu.Lock()
	if st.state != streamOpen {
		st.mu.Unlock()
		return
	}
	if st.lacks(o) && childTable.step(&st.children[i].state, childMiss) {
		st.resent++
		st.holders++
		st.mu.Unlock()
		go st.resend(i, o.MMCacheMissHashes) // ends before the gate has the share of the request again
		return
	}
	end := st.take(i, o)
	free := end != nil && st.endHeld(end)
	st.mu.Unlock()
	switch {
	case free && end == io.EOF:
		st.settle() // sends nothing
	case free:
		go st.settle()
	}
}

// lacks reports whether an output is the answer of an engine that lacks items which
// it can be sent. mu is held.
func (st *Stream) lacks(o *enginecore.Output) bool {
	return o.Err == nil && len(o.MMCacheMissHashes) > 0 && st.req.Items != nil && st.resent < maxResent*len(st.children)
}

// take adds an output to the queue, and returns what ends the stream, if anything
// does. mu is held.
func (st *Stream) take(i int, o *enginecore.Output) error {
	c := &st.children[i]
	if o.Err != nil {
		return st.failed(o.Err)
	}
	if c.state != childRunning {
		err := fmt.Errorf("the engine sent an output for child %d, which %s", i, c.state)
		childTable.step(&c.state, childStray)
		return st.failed(err)
	}
	if err := st.limits.count(i, c, o); err != nil {
		return st.failed(err)
	}
	if o.FinishReason == nil {
		childTable.step(&c.state, childOutput)
	} else {
		childTable.step(&c.state, childLast)
		st.left--
		if *o.FinishReason == enginecore.FinishError {
			e := &RequestError{ID: st.req.ID}
			if o.Error != nil {
				e.Code, e.Text, e.Retryable = o.Error.Code, o.Error.Message, o.Error.Retryable
			}
			return e
		}
		st.harsh = st.harsh || !gentle(*o.FinishReason)
	}
	core := kept(o)
	st.out.put(Output{Index: i, TokenIDs: core.NewTokenIDs, FinishReason: core.FinishReason, Core: core})
	if st.left == 0 {
		return io.EOF
	}
	return nil
}

// gentle reports whether the workers are done with a request that finished so. An engine
// that finishes a request for another reason may have a batch with it under way.
func gentle(r enginecore.FinishReason) bool {
	return r == enginecore.FinishStop || r == enginecore.FinishLength || r == enginecore.FinishRepetition
}

// failed is the end of a request whose answer could not be used.
func (st *Stream) failed(err error) error { return &RequestError{ID: st.req.ID, Err: notEOF(err)} }

// resend sends a child again with the items that the engine lacked. It holds the stream.
func (st *Stream) resend(i int, keys []string) {
	defer st.release()
	defer func() { // nobody else can recover from what a producer does here
		if x := recover(); x != nil {
			st.end(st.failed(fmt.Errorf("it was to be sent again, and that panicked: %v\n%s", x, debug.Stack())))
		}
	}()
	st.s.c.count(func(n *Stats) { n.Resent++ })
	err := st.req.Items.Missed(st.ctx, keys, func(b mmcache.Batch) error {
		m, err := st.s.message(&st.req, st.children[i].id, b.Items)
		if err != nil {
			return err
		}
		return st.send(i, m)
	})
	if err != nil {
		st.end(st.failed(err))
	}
}
