package kvload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// Request is a request of an engine. Places in its prompt are chunks, from the first one on.
type Request struct {
	ID     string
	Prompt *Prompt
	Salt   string
}

// errAnswer reports an answer that ends an engine, or has wrong bytes.
var errAnswer = errors.New("kvload: the server's answer is wrong")

func (e *Engine) key(r *Request, w *worker, from, to int) *mp.IpcCacheServerKey {
	k := &mp.IpcCacheServerKey{
		ModelName: e.o.Model, WorldSize: int64(e.o.World), Start: int64(from * e.Chunk), End: int64(to * e.Chunk),
		RequestId: r.ID, CacheSalt: r.Salt, NumKvReaders: 1, Tokens: r.Prompt.packed,
	}
	if e.o.Old {
		k.Tokens = r.Prompt.varints
	}
	if w != nil {
		k.WorkerId = &w.number
	}
	return k
}

// Ask looks chunks up.
func (e *Engine) Ask(ctx context.Context, r *Request, from, to int) error {
	q := &mp.LookupRequest{Key: e.key(r, nil, from, to), TpSize: int64(e.o.World)}
	if !e.o.Old { // how many tokens the engine has computed itself: a hint, in each look-up
		q.Key.EncodedRequestConfigs = msgp.AppendInt(msgp.AppendString(msgp.AppendMapHeader(nil, 1),
			"lmcache.hint.engine_computed_tokens"), from*e.Chunk)
	}
	return e.call(ctx, e.scheduler, "LookupService/Lookup", q, &mp.LookupResponse{})
}

// Status returns how many chunks a look-up has found, from the first one of the prompt on. It asks until that is
// known.
func (e *Engine) Status(ctx context.Context, r *Request) (int, error) {
	for ; ; time.Sleep(time.Millisecond) {
		p := &mp.QueryPrefetchStatusResponse{}
		if err := e.call(ctx, e.scheduler, "LookupService/QueryPrefetchStatus",
			&mp.QueryPrefetchStatusRequest{RequestId: r.ID}, p); err != nil {
			return 0, err
		}
		if p.ChunkCount != nil {
			return int(*p.ChunkCount), nil
		}
	}
}

// Free gives up what look-ups rely on within a range, and within another one that may be empty, of 0.5.7.
func (e *Engine) Free(ctx context.Context, r *Request, from, to, extraFrom, extraTo int) error {
	q := &mp.FreeLookupLocksRequest{Key: e.key(r, nil, from, to), TpSize: int64(e.o.World)}
	if extraTo > extraFrom {
		q.ExtraRanges = []*mp.TokenRange{{Start: int64(extraFrom * e.Chunk), End: int64(extraTo * e.Chunk)}}
	}
	return e.call(ctx, e.scheduler, "LookupService/FreeLookupLocks", q, &mp.FreeLookupLocksResponse{})
}

// End ends a request.
func (e *Engine) End(ctx context.Context, r *Request) error {
	return e.call(ctx, e.scheduler, "LookupService/EndSession", &mp.EndSessionRequest{RequestId: r.ID},
		&mp.EndSessionResponse{})
}

// Load loads a range by all workers, and verifies every byte. It reports whether all was there. between is called
// before the bytes are compared: the server may be killed there.
func (e *Engine) Load(ctx context.Context, r *Request, from, to int, between func()) (bool, error) {
	all := true
	for _, w := range e.workers {
		k := e.key(r, w, from, to)
		p := &mp.PrepareRetrieveResponse{}
		err := e.call(ctx, &w.client, "EngineDrivenService/PrepareRetrieve",
			&mp.PrepareRetrieveRequest{Key: k, InstanceId: w.instance}, p)
		if err == nil && p.Success {
			between()
			err = e.verify(r, w, p, from, to)
		}
		all = all && err == nil && p.Success
		if err2 := again(ctx, func() error { // which always follows
			return e.call(ctx, &w.client, "EngineDrivenService/CommitRetrieve",
				&mp.CommitRetrieveRequest{Key: k, InstanceId: w.instance},
				&mp.CommitRetrieveResponse{})
		}); err == nil {
			err = err2
		}
		if err != nil {
			return false, err
		}
	}
	return all, nil
}

// verify compares what a load was answered.
func (e *Engine) verify(r *Request, w *worker, p *mp.PrepareRetrieveResponse, from, to int) error {
	var got []object
	var err error
	if e.o.Inline {
		got, err = bodies(p.Data, from, to)
	} else {
		got, err = e.places(p.EncodedContext, from, to)
	}
	if err != nil {
		return err
	}
	want := to - from + (len(e.o.Layers) - 1) // the other groups need their last chunk only
	if len(got) != want {
		return fmt.Errorf("%w: %d objects for chunks %d to %d, not %d", errAnswer, len(got), from, to, want)
	}
	seen := map[[2]int]bool{}
	for _, o := range got {
		at := [2]int{o.chunk, o.group}
		if seen[at] || o.group > 0 && o.chunk != to-1 || len(o.bytes) != e.bytes(o.group) {
			return fmt.Errorf("%w: chunk %d of group %d with %d bytes, in a load of %d to %d",
				errAnswer, o.chunk, o.group, len(o.bytes), from, to)
		}
		seen[at] = true
		if !r.Prompt.same(o.bytes, o.chunk, e.identity(r, w, o.group)) {
			return fmt.Errorf("%w: wrong bytes of chunk %d of group %d of %s, in a load of %d to %d: %.32x",
				errAnswer, o.chunk, o.group, r.ID, from, to, o.bytes)
		}
	}
	return nil
}

// Stored is what became of a store.
type Stored struct {
	Objects int  // that the server wanted
	Lost    bool // the server did not take what was written
}

// Store stores a range by all workers. between is called while the server waits for the bytes.
func (e *Engine) Store(ctx context.Context, r *Request, from, to int, between func()) (s Stored, err error) {
	for _, w := range e.workers {
		k := e.key(r, w, from, to)
		p := &mp.PrepareStoreResponse{}
		if err := e.call(ctx, &w.client, "EngineDrivenService/PrepareStore",
			&mp.PrepareStoreRequest{Key: k, InstanceId: w.instance}, p); err != nil {
			return s, err
		}
		q := &mp.CommitStoreRequest{Key: k, InstanceId: w.instance}
		if e.o.Inline {
			s.Objects += (to - from) * len(e.o.Layers)
			q.Data = e.body(r, w, from, to)
		} else {
			slots, err := e.places(p.EncodedContext, from, to)
			if err != nil {
				return s, err
			}
			if len(slots) == 0 {
				continue // there is nothing to commit
			}
			s.Objects += len(slots)
			for _, o := range slots {
				if len(o.bytes) != e.bytes(o.group) {
					return s, fmt.Errorf("%w: room of %d bytes for an object of %d",
						errAnswer, len(o.bytes), e.bytes(o.group))
				}
				r.Prompt.fill(o.bytes, o.chunk, e.identity(r, w, o.group))
			}
			between()
			for _, o := range slots {
				if !r.Prompt.same(o.bytes, o.chunk, e.identity(r, w, o.group)) {
					return s, fmt.Errorf("%w: what was reserved for chunk %d of %s is another's",
						errAnswer, o.chunk, r.ID)
				}
			}
		}
		done := &mp.CommitStoreResponse{}
		if err := e.call(ctx, &w.client, "EngineDrivenService/CommitStore", q, done); err != nil {
			return s, err
		}
		s.Lost = s.Lost || !done.Success
	}
	return s, nil
}
