package enginetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Vocabulary is the size of the stand-in's vocabulary.
const Vocabulary = 256

// defaultTokens is vLLM's default of max_tokens.
const defaultTokens = 16

// receive is the input thread. What it can't decode ends it, and leaves the engine
// deaf.
func (e *Engine) receive() {
	for {
		m, err := e.sockets.in.Recv()
		if err != nil {
			return
		}
		if err := e.take(m); err != nil {
			e.mu.Lock()
			e.fatal = fmt.Errorf("enginetest: the input thread died: %w", err)
			e.mu.Unlock()
			e.sockets.in.Close()
			return
		}
	}
}

func (e *Engine) take(frames [][]byte) error {
	m, err := e.wire.Decode(frames)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.Request:
		return e.add(m)
	case wire.Abort:
		e.mu.Lock()
		for _, id := range m {
			e.aborted[id] = true
			e.arrived.aborts = append(e.arrived.aborts, id)
		}
		e.mu.Unlock()
	case *enginecore.Call:
		e.enqueue(work{call: m})
	}
	return nil
}

func (e *Engine) enqueue(w work) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, w)
	e.changed.Broadcast()
}

// add takes a request, after the mirror has replaced what it keeps.
func (e *Engine) add(r *wire.Request) error {
	e.mu.Lock()
	e.arrived.requests = append(e.arrived.requests, r)
	e.mu.Unlock()
	if e.mirror != nil {
		fs := make([]lrusync.Feature[*serde.Item], len(r.Features))
		for i, f := range r.Features {
			fs[i] = lrusync.Feature[*serde.Item]{Key: f.Identifier, Value: f.Data, HasData: f.Data != nil}
			if f.Data != nil {
				fs[i].Size, _ = lrusync.ItemSize(f.Data, lrusync.Python{})
			}
		}
		items, err := e.mirror.GetAndUpdate(fs)
		var miss *upstream.MissError
		if err != nil && !e.o.Generation.Cache.MissError {
			return err
		}
		if errors.As(err, &miss) {
			reason := enginecore.FinishError
			e.send(&enginecore.Outputs{Outputs: []enginecore.Output{{
				RequestID: r.RequestID, NewTokenIDs: []uint32{}, FinishReason: &reason, MMCacheMissHashes: miss.Keys,
			}}})
			return nil
		}
		for i := range r.Features {
			r.Features[i].Data = items[i]
		}
	}
	q := &request{core: r, max: defaultTokens}
	if n, ok := r.SamplingParams["max_tokens"].(int64); ok {
		q.max = int(n)
	}
	q.max = min(q.max, e.o.MaxModelLen-len(r.PromptTokenIDs))
	e.enqueue(work{add: q})
	return nil
}

// loop is the engine's: it makes one token of each running request at a time.
func (e *Engine) loop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		for !e.ended && (e.orders.held || len(e.queue) == 0 && len(e.running) == 0) {
			e.changed.Wait()
		}
		if e.ended {
			return
		}
		e.schedule()
		e.step()
		e.mu.Unlock() // for whoever waits
		e.mu.Lock()
	}
}

// schedule handles calls, which wait for nothing, and admits requests in order.
func (e *Engine) schedule() {
	rest := e.queue[:0]
	for _, w := range e.queue {
		switch {
		case w.call != nil:
			e.call(w.call)
		case e.aborted[w.add.core.RequestID]:
		case len(e.running) < e.o.MaxNumSeqs:
			e.running = append(e.running, w.add)
		default:
			rest = append(rest, w)
		}
	}
	e.queue = rest
	e.running = slices.DeleteFunc(e.running, func(r *request) bool { return e.aborted[r.core.RequestID] })
}

func (e *Engine) step() {
	var out enginecore.Outputs
	for _, r := range e.running {
		if !r.read {
			if err := e.read(r); err != nil {
				e.die(err)
				return
			}
		}
		o := enginecore.Output{RequestID: r.core.RequestID, NewTokenIDs: []uint32{token(r.state)}}
		r.state = next(r.state)
		r.made++
		if r.made == r.max {
			reason := enginecore.FinishLength
			o.FinishReason = &reason
		}
		out.Outputs = append(out.Outputs, o)
	}
	e.running = slices.DeleteFunc(e.running, func(r *request) bool { return r.made == r.max })
	if len(out.Outputs) > 0 && !e.orders.silent {
		e.send(&out)
	}
}

// read is what every worker does with a new request.
func (e *Engine) read(r *request) error {
	r.read = true
	items := make([]*serde.Item, len(r.core.Features))
	for i, f := range r.core.Features {
		items[i] = f.Data
		a, ok, err := serde.ParseAddress(f.Data, serde.Options{Generation: e.o.Generation})
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		for _, w := range e.workers {
			if err := w.Touch(context.Background(), f.Identifier, a); err != nil {
				return err
			}
		}
		for _, w := range e.workers {
			v, err := w.Get(f.Identifier, a)
			if err != nil {
				return err
			}
			items[i] = serde.Clone(v.Value()).(*serde.Item)
			if err := v.Release(); err != nil {
				return err
			}
		}
	}
	r.state = seed(r.core.PromptTokenIDs, items)
	return nil
}

// seed is a hash of all that a request gives the model.
func seed(prompt []uint32, items []*serde.Item) uint64 {
	h := fnv.New64a()
	for _, t := range prompt {
		h.Write(binary.LittleEndian.AppendUint32(nil, t))
	}
	for _, it := range items {
		for _, e := range it.Elems {
			if t, ok := e.Data.(*serde.Tensor); ok {
				h.Write(t.Data)
			}
		}
	}
	return h.Sum64()
}

// Tokens returns what the stand-in answers.
func Tokens(prompt []uint32, n int, items ...*serde.Item) []uint32 {
	state := seed(prompt, items)
	out := make([]uint32, n)
	for i := range out {
		out[i] = token(state)
		state = next(state)
	}
	return out
}

// next and token are a linear congruential generator, whose low bits are poor.
func next(state uint64) uint64  { return state*6364136223846793005 + 1442695040888963407 }
func token(state uint64) uint32 { return uint32(state>>32) % Vocabulary }

func (e *Engine) call(c *enginecore.Call) {
	e.arrived.calls = append(e.arrived.calls, c.Method)
	if e.orders.silent {
		return
	}
	u := &enginecore.Answer{CallID: c.ID}
	method := c.Method
	if e.orders.refuse[method] {
		method = ""
	}
	switch method {
	case "reset_mm_cache":
		if e.mirror != nil {
			e.mirror.Clear()
		}
	case "is_sleeping", "reset_prefix_cache":
		u.Result = c.Method != "is_sleeping"
	case "collective_rpc":
		u.Result = make([]any, e.o.Workers)
	case "reset_encoder_cache", "sleep", "wake_up":
	default:
		text := fmt.Sprintf("Call to %s method failed: no such method", c.Method)
		u.Failure = &text
	}
	e.send(&enginecore.Outputs{Answer: u})
}

func (e *Engine) send(o *enginecore.Outputs) {
	f, err := e.wire.EncodeOutputs(o)
	if err != nil {
		panic(err) // what it makes can be encoded
	}
	_ = e.sockets.out.Send(f...) // the frontend may have gone
}
