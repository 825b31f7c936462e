package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Output is what one step of the engine made for a request.
type Output struct {
	// Index is the number of the child (0 to n-1) of a request for n sequences.
	Index int
	// TokenIDs are the new tokens.
	TokenIDs []uint32
	// FinishReason is not nil with the last output of each child.
	FinishReason *enginecore.FinishReason
	// Core is the whole of it. It belongs to the reader, and shares no memory with other
	// outputs.
	Core *enginecore.Output
}

// Stream is the answer to one request. It has one reader; Close may be called by
// anyone.
type Stream struct {
	s     *session
	req   Request
	ids   []string // the engine's, one for each child
	items *mmcache.Request
	stop  func() bool // ends the watch of the context

	// sending is held while messages of the request are sent, so that an abort is
	// behind what it aborts.
	sending sync.Mutex
	sent    atomic.Bool

	mu     sync.Mutex
	posted int    // children that were sent, or are being sent: the first ones
	ended  []bool // by child
	live   int    // children that have not ended
	may    allowance
	queue  []Output      // bounded by may
	err    error         // io.EOF at the regular end
	tell   chan struct{} // of one: queue or err has changed
	misses int
	harsh  bool // the engine, not the model, ended a child
}

// maxMisses is how often a child may be sent again, since the engine lacked items
// of it. The second time it has all of them.
const maxMisses = 4

// ID returns the request's id.
func (st *Stream) ID() string { return st.req.ID }

// Next waits for the next output. At the end it returns io.EOF, or what ended the
// request before: the context's error, ErrAborted, ErrClosed, a [*DeadError], a
// [*RequestError]. The error of ctx ends only the wait. What is not read is kept,
// so that a slow reader holds up nobody: at most max_tokens for each child, since an
// engine that sends more than it was asked for ends the request.
func (st *Stream) Next(ctx context.Context) (Output, error) {
	for {
		st.mu.Lock()
		if len(st.queue) > 0 {
			o := st.queue[0]
			st.queue[0] = Output{} // the slice may live on
			st.queue = st.queue[1:]
			st.mu.Unlock()
			return o, nil
		}
		err := st.err
		st.mu.Unlock()
		if err != nil {
			return Output{}, err
		}
		select {
		case <-st.tell:
		case <-ctx.Done():
			return Output{}, ctx.Err()
		}
	}
}

// Outputs iterates over the outputs; an error is the last, and there is none at
// the regular end. A loop that ends early aborts the request.
func (st *Stream) Outputs() iter.Seq2[Output, error] {
	return func(yield func(Output, error) bool) {
		defer st.Close()
		for {
			o, err := st.Next(context.Background())
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Output{}, err)
				return
			case !yield(o, nil):
				return
			}
		}
	}
}

// Collect reads to the end and returns the tokens of each child.
func (st *Stream) Collect() ([][]uint32, error) {
	out := make([][]uint32, len(st.ids))
	for o, err := range st.Outputs() {
		if err != nil {
			return out, err
		}
		out[o.Index] = append(out[o.Index], o.TokenIDs...)
	}
	return out, nil
}

// Close ends the stream; a request that is not done is aborted.
func (st *Stream) Close() { st.abort(ErrAborted) }

// push takes an output of the engine for a child. It never waits for the reader.
func (st *Stream) push(child int, o *enginecore.Output) {
	st.mu.Lock()
	if st.err != nil {
		st.mu.Unlock()
		return
	}
	if o.Err != nil {
		st.mu.Unlock()
		st.give(&RequestError{ID: st.req.ID, Err: o.Err})
		return
	}
	if child >= st.posted || st.ended[child] {
		if st.ended[child] { // there, it has not: it is aborted with the others
			st.ended[child] = false
			st.live++
		}
		st.mu.Unlock()
		st.give(&RequestError{ID: st.req.ID, Err: fmt.Errorf("the engine sent an output for child %d, which had finished, or was not sent yet", child)})
		return
	}
	if len(o.MMCacheMissHashes) > 0 && st.items != nil && st.misses < maxMisses*len(st.ids) {
		st.misses++
		st.mu.Unlock()
		st.s.wait.Go(func() { st.resend(child, o.MMCacheMissHashes) })
		return
	}
	if o.FinishReason != nil && *o.FinishReason == enginecore.FinishError {
		st.finished(child)
		st.mu.Unlock()
		e := &RequestError{ID: st.req.ID}
		if o.Error != nil {
			e.Code, e.Text, e.Retryable = o.Error.Code, o.Error.Message, o.Error.Retryable
		}
		st.give(e)
		return
	}
	if err := st.may.spend(child, o); err != nil {
		st.mu.Unlock()
		st.give(&RequestError{ID: st.req.ID, Err: err})
		return
	}
	core := kept(o)
	st.queue = append(st.queue, Output{Index: child, TokenIDs: core.NewTokenIDs, FinishReason: core.FinishReason, Core: core})
	last := false
	if core.FinishReason != nil {
		st.finished(child)
		last = st.live == 0
		st.harsh = st.harsh || *core.FinishReason != enginecore.FinishStop && *core.FinishReason != enginecore.FinishLength && *core.FinishReason != enginecore.FinishRepetition
	}
	if last {
		st.err = io.EOF
	}
	harsh := st.harsh
	st.mu.Unlock()
	st.wake()
	if last {
		st.end(!harsh)
	}
}

// finished takes note of the end of a child. It is called with mu held.
func (st *Stream) finished(child int) {
	st.ended[child] = true
	st.live--
}

// give gives the request up, at once for its reader. What reads the engine's answers
// must not wait for what sends.
func (st *Stream) give(err error) {
	if live, first := st.fail(err); first {
		st.s.wait.Go(func() { st.release(live, true) })
	}
}

func (st *Stream) wake() {
	select {
	case st.tell <- struct{}{}:
	default:
	}
}

// fail makes err the end of the stream, if it has none yet, and returns the
// children that the engine still runs.
func (st *Stream) fail(err error) (live []string, first bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err != nil {
		return nil, false
	}
	st.err = err
	for i, id := range st.ids[:st.posted] {
		if !st.ended[i] {
			live = append(live, id)
		}
	}
	defer st.wake()
	return live, true
}

// abort ends the request on both sides.
func (st *Stream) abort(err error) { st.giveUp(err, true) }

// giveUp ends the request, and tells the engine if there is one.
func (st *Stream) giveUp(err error, tell bool) {
	if live, first := st.fail(err); first {
		st.release(live, tell)
	}
}

// release gives back what a request holds that has failed, after its children were aborted.
func (st *Stream) release(live []string, tell bool) {
	st.sending.Lock() // what is half sent is sent, or has failed
	if tell && len(live) > 0 {
		st.s.sendAbort(live)
	}
	st.sending.Unlock()
	st.end(false)
}

// end gives back what the request holds. clean says that the workers have done
// with it. Nothing of the request is about to be sent any more. If nothing was, its
// items are not ours, and may be another's by now.
func (st *Stream) end(clean bool) {
	st.stop()
	defer st.s.forget(st) // when nothing is held any more
	if !st.sent.Load() {
		return
	}
	st.s.c.count(func(n *Stats) {
		if clean {
			n.Finished++
		} else {
			n.Failed++
		}
	})
	switch {
	case st.items == nil:
	case clean:
		st.items.Finish()
	default:
		st.items.Abort()
		st.s.needFence()
	}
}

// send sends a child, unless the request was aborted.
func (st *Stream) send(child int, f [][]byte, again bool) error {
	st.sending.Lock()
	defer st.sending.Unlock()
	st.mu.Lock()
	err := st.err
	if err == nil {
		st.posted = max(st.posted, child+1) // before the answer can come
	}
	st.mu.Unlock()
	if err != nil {
		return err
	}
	if !st.sent.Swap(true) {
		st.s.c.count(func(n *Stats) { n.Requests++ })
	}
	if err = st.s.send(f); err != nil && child == 0 && !again {
		st.sent.Store(false) // nothing was sent: Commit fails, and the items stay the caller's
		st.s.c.count(func(n *Stats) { n.Requests-- })
	}
	return err
}

// resend sends a child again with the items that the engine lacked.
func (st *Stream) resend(child int, keys []string) {
	defer func() { // nobody else can recover from what a producer does here
		if x := recover(); x != nil {
			st.abort(&RequestError{ID: st.req.ID, Err: fmt.Errorf("it was to be sent again, and that panicked: %v\n%s", x, debug.Stack())})
		}
	}()
	st.s.c.count(func(n *Stats) { n.Resent++ })
	err := st.items.Missed(st.s.ctx, keys, func(b mmcache.Batch) error {
		if _, err := st.s.items(&st.req, b.Items); err != nil {
			return err
		}
		m, err := st.req.message(st.ids[child], st.req.features(b.Items), st.s)
		if err != nil {
			return err
		}
		f, err := m.Child(child, st.ids[child])
		if err != nil {
			return err
		}
		return st.send(child, f, true)
	})
	if err != nil {
		st.abort(&RequestError{ID: st.req.ID, Err: err})
	}
}
