package engine

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"sync"

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
// See docs/decisions.md, "A request of the engine has holders, and the last one settles it".
type Stream struct {
	s      *session
	req    Request
	ctx    context.Context // of what is done for the request; ends with the stream
	cancel context.CancelCauseFunc
	unhook func() bool // ends the watch of the caller's context

	// Written by Generate while it holds the stream, read when the stream is settled.
	sent      bool // a child went out
	committed bool // the items are the engine's, no longer the caller's

	mu       sync.Mutex
	state    streamState
	holders  int // Generate, and repeated sends
	children []child
	left     int // children that have not finished
	limits   outputLimits
	resent   int
	harsh    bool // the engine, not the model, finished a child
	out      outbox
}

// child is one sequence of a request: a request of its own for the engine.
type child struct {
	id     string // the engine's
	state  childState
	tokens int // that the engine sent
}

// newStream makes the stream of a request that was verified. Generate holds the stream.
func (s *session) newStream(ctx context.Context, r Request, children int) *Stream {
	st := &Stream{
		s: s, req: r, state: streamOpen, holders: 1, left: children,
		children: slices.Repeat([]child{{state: childUnsent}}, children), limits: s.outputLimits(&r), out: newOutbox(),
	}
	st.ctx, st.cancel = context.WithCancelCause(ctx)
	st.unhook = context.AfterFunc(ctx, func() { st.end(notEOF(context.Cause(ctx))) })
	return st
}

// name gives the children their ids. number is that of the request.
func (st *Stream) name(number uint64) {
	base := st.req.ID + "-" + strconv.FormatUint(number, 36)
	if len(st.children) == 1 {
		st.children[0].id = base
		return
	}
	for i := range st.children {
		st.children[i].id = strconv.Itoa(i) + "_" + base
	}
}

// Next waits for the next output. At the end it returns io.EOF, or what ended the
// request before: the context's error, an [fs.ErrClosed] if the stream or the client was
// closed, an [ErrDead], a [*RequestError]. The error of ctx ends only the wait.
//
// What is not read is kept, so that a slow reader holds up nobody: at most max_tokens
// for each child, since an engine that sends more than it was asked for ends the request.
func (st *Stream) Next(ctx context.Context) (Output, error) {
	for {
		st.mu.Lock()
		o, found, err := st.out.take()
		st.mu.Unlock()
		if found {
			return o, err
		}
		select {
		case <-st.out.news:
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
	out := make([][]uint32, len(st.children))
	for o, err := range st.Outputs() {
		if err != nil {
			return out, err
		}
		out[o.Index] = append(out[o.Index], o.TokenIDs...)
	}
	return out, nil
}

// Close ends the stream; a request that is not done is aborted.
func (st *Stream) Close() { st.end(errAborted) }

// end ends the stream with its last word: io.EOF at the regular end, else why the
// request was given up. Only the first call has an effect.
func (st *Stream) end(err error) {
	st.mu.Lock()
	free := st.endHeld(err)
	st.mu.Unlock()
	if free {
		st.settle()
	}
}

// endHeld is end with mu held. It reports whether the caller has to settle the
// request; else the last holder does.
func (st *Stream) endHeld(err error) (free bool) {
	if !streamTable.step(&st.state, streamEnd) {
		return false
	}
	st.cancel(err)
	st.out.end(err)
	return st.freeHeld()
}

// release ends a hold.
func (st *Stream) release() {
	st.mu.Lock()
	st.holders--
	free := st.freeHeld()
	st.mu.Unlock()
	if free {
		st.settle()
	}
}

// freeHeld reports whether the request is to be settled now. mu is held.
func (st *Stream) freeHeld() bool {
	return st.holders == 0 && streamTable.step(&st.state, streamFree)
}

// settle gives back what the request holds. It is called once, when the stream has
// ended and nobody sends for it any more.
func (st *Stream) settle() {
	s := st.s
	st.unhook()
	running := st.running()
	if len(running) > 0 && s.deadError() == nil {
		s.sendAbort(running)
	}
	clean := st.out.last == io.EOF && !st.harsh
	switch {
	case !st.committed || st.req.Items == nil: // there are none, or they are still the caller's
	case clean:
		st.req.Items.Finish()
	default:
		st.req.Items.Abort()
		s.needFence()
	}
	s.forget(st)
	s.c.count(func(n *Stats) {
		n.InFlight--
		switch {
		case !st.sent:
			n.Refused++
		case clean:
			n.Finished++
		default:
			n.Failed++
		}
	})
	s.c.gate.Release(1) // last: who waits for it expects the rest
}

// running returns the engine's ids of the children that the engine runs.
func (st *Stream) running() (ids []string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range st.children {
		if c.state == childRunning {
			ids = append(ids, c.id)
		}
	}
	return ids
}
