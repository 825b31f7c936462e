package engine

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

// Output is what one step of the engine made for a request.
type Output struct {
	// Index is the number of the child (0 to n-1) of a request for n sequences.
	Index int
	// TokenIDs are the new tokens.
	TokenIDs []uint32
	// FinishReason is not nil with the last output of each child.
	FinishReason *serde.FinishReason
	// Core is the whole of it.
	Core *serde.EngineCoreOutput
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
	live   map[string]int // children that go on, by id
	queue  []Output
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
// so that a slow reader holds up nobody.
func (st *Stream) Next(ctx context.Context) (Output, error) {
	for {
		st.mu.Lock()
		if len(st.queue) > 0 {
			o := st.queue[0]
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

// push takes an output of the engine. It never waits for the reader.
func (st *Stream) push(o *serde.EngineCoreOutput) {
	st.mu.Lock()
	index, ok := st.live[o.RequestID]
	if !ok || st.err != nil {
		st.mu.Unlock()
		return
	}
	switch {
	case o.Err != nil:
		st.mu.Unlock()
		st.give(&RequestError{ID: st.req.ID, Err: o.Err})
		return
	case len(o.MMCacheMissHashes) > 0 && st.items != nil && st.misses < maxMisses*len(st.ids):
		st.misses++
		st.mu.Unlock()
		st.s.wait.Go(func() { st.resend(o.RequestID, o.MMCacheMissHashes) })
		return
	case o.FinishReason != nil && *o.FinishReason == serde.FinishError:
		delete(st.live, o.RequestID)
		st.mu.Unlock()
		e := &RequestError{ID: st.req.ID}
		if o.Error != nil {
			e.Code, e.Text, e.Retryable = o.Error.Code, o.Error.Message, o.Error.Retryable
		}
		st.give(e)
		return
	}
	st.queue = append(st.queue, Output{Index: index, TokenIDs: o.NewTokenIDs, FinishReason: o.FinishReason, Core: o})
	last := false
	if o.FinishReason != nil {
		delete(st.live, o.RequestID)
		last = len(st.live) == 0
		st.harsh = st.harsh || *o.FinishReason != serde.FinishStop && *o.FinishReason != serde.FinishLength && *o.FinishReason != serde.FinishRepetition
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

// give gives the request up. What reads the engine's answers must not wait for
// what sends.
func (st *Stream) give(err error) { st.s.wait.Go(func() { st.abort(err) }) }

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
	for id := range st.live {
		live = append(live, id)
	}
	defer st.wake()
	return live, true
}

// abort ends the request on both sides.
func (st *Stream) abort(err error) { st.giveUp(err, true) }

// giveUp ends the request, and tells the engine if there is one.
func (st *Stream) giveUp(err error, tell bool) {
	live, first := st.fail(err)
	if !first {
		return
	}
	st.sending.Lock() // what is half sent is sent, or has failed
	if tell && st.sent.Load() && len(live) > 0 {
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

// send sends messages of the request, unless it was aborted.
func (st *Stream) send(messages []serde.Frames) error {
	st.sending.Lock()
	defer st.sending.Unlock()
	st.mu.Lock()
	err := st.err
	st.mu.Unlock()
	if err != nil {
		return err
	}
	if !st.sent.Swap(true) { // before the answer can come
		st.s.c.count(func(n *Stats) { n.Requests++ })
	}
	for _, m := range messages {
		if err := st.s.send(serde.MessageAdd, m); err != nil {
			return err
		}
	}
	return nil
}

// resend sends a child again with the items that the engine lacked.
func (st *Stream) resend(id string, keys []string) {
	st.s.c.count(func(n *Stats) { n.Resent++ })
	err := st.items.Missed(st.s.ctx, keys, func(b mmcache.Batch) error {
		if _, err := st.s.items(&st.req, b.Items); err != nil {
			return err
		}
		m, err := st.req.messages([]string{id}, b.Items, st.s.options())
		if err != nil {
			return err
		}
		return st.send(m)
	})
	if err != nil {
		st.abort(&RequestError{ID: st.req.ID, Err: err})
	}
}
