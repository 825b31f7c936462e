package lmcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/latency"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/tracing"
)

// Bounds of what a client may do, whatever carries it.
const (
	// maxMessage bounds a message: the bytes of a step of an engine that can't map the segment. More than it
	// ends the engine.
	maxMessage = 1 << 30
	// maxCalls bounds the calls of a connection, each of which may bring a message: more of them wait at the
	// client.
	maxCalls = 64
	// handshake is how long a connection may say nothing at first.
	handshake = 5 * time.Second
)

// caller is who has made a call.
type caller struct {
	ctx     context.Context //nolint:containedctx // of the call
	conn    *connection
	id      string // of the client
	release release
	room    *room          // of the call's messages; nil if nothing bounds them
	trace   tracing.Caller // the trace context of the call; nil if there can be none
	span    tracing.Span   // of the call
}

// method handles a call: it has a message of its own, and a function. Calls take moments, but for those of a
// method that waits.
type method struct {
	waits   bool
	request func() proto.Message
	handle  func(s *Server, c caller, q proto.Message) (proto.Message, error)
}

// on makes a method of a function on its own type of message.
func on[Q any, P interface {
	*Q
	proto.Message
}](handle func(s *Server, c caller, q P) (proto.Message, error)) method {
	return method{
		request: func() proto.Message { return P(new(Q)) },
		handle:  func(s *Server, c caller, q proto.Message) (proto.Message, error) { return handle(s, c, q.(P)) },
	}
}

// waiting makes a method one that waits.
func waiting(m method) method {
	m.waits = true
	return m
}

// methods are what clients call, whatever carries it.
var methods = map[string]method{
	"GetChunkSize": on(func(s *Server, c caller, _ *mp.GetChunkSizeRequest) (proto.Message, error) {
		s.note(c)
		return &mp.GetChunkSizeResponse{ChunkSize: int64(s.chunkSize())}, nil
	}),
	"GetExperimental": on(func(s *Server, c caller, _ *mp.GetExperimentalRequest) (proto.Message, error) {
		s.note(c)
		if c.release != since057 && s.events.memory != nil { // 0.5.7 subscribes in any case
			return &mp.GetExperimentalResponse{Names: []string{eventCapability}}, nil
		}
		return &mp.GetExperimentalResponse{}, nil
	}),
	"Ping": on(func(s *Server, c caller, q *mp.PingRequest) (proto.Message, error) {
		s.note(c)
		return &mp.PingResponse{Ok: s.workers.ping(c, q.InstanceId)}, nil
	}),
	"Clear": on(func(s *Server, c caller, _ *mp.ClearRequest) (proto.Message, error) {
		return &mp.ClearResponse{}, s.clear(c)
	}),
	"Noop": on(func(*Server, caller, *mp.NoopRequest) (proto.Message, error) {
		return &mp.NoopResponse{Message: "OK"}, nil
	}),
	"ReportBlockAllocation": on(func(*Server, caller, *mp.ReportBlockAllocationRequest) (proto.Message, error) {
		return &mp.ReportBlockAllocationResponse{}, nil
	}),
	"NegotiateChunkSize": on(func(s *Server, c caller, q *mp.NegotiateChunkSizeRequest) (proto.Message, error) {
		s.note(c)
		n, err := s.negotiateChunkSize(q.RequiredChunkAlignment)
		return &mp.NegotiateChunkSizeResponse{ChunkSize: int64(n)}, err
	}),

	"Lookup": on(func(s *Server, c caller, q *mp.LookupRequest) (proto.Message, error) {
		return &mp.LookupResponse{}, s.lookUp(c, q.GetKey())
	}),
	"QueryPrefetchStatus": on(func(s *Server, c caller, q *mp.QueryPrefetchStatusRequest) (proto.Message, error) {
		return &mp.QueryPrefetchStatusResponse{ChunkCount: s.status(c, q.RequestId)}, nil
	}),
	"WaitPrefetchStatus": waiting(on(func(s *Server, c caller, q *mp.WaitPrefetchStatusRequest) (proto.Message, error) {
		n := s.waitForStatus(c.ctx, c, q.RequestId, q.Timeout)
		return &mp.WaitPrefetchStatusResponse{ChunkCount: n}, nil
	})),
	"FreeLookupLocks": on(func(s *Server, c caller, q *mp.FreeLookupLocksRequest) (proto.Message, error) {
		return &mp.FreeLookupLocksResponse{}, s.freeLocks(c, q)
	}),
	"EndSession": on(func(s *Server, c caller, q *mp.EndSessionRequest) (proto.Message, error) {
		return &mp.EndSessionResponse{}, s.endSession(c, q.RequestId)
	}),

	"RegisterKvCacheEngineDrivenContext": on(func(s *Server, c caller, q *mp.RegisterKvCacheEngineDrivenContextRequest) (proto.Message, error) {
		name, size, err := s.workers.register(c, q)
		return &mp.RegisterKvCacheEngineDrivenContextResponse{ShmName: name, PoolSize: size}, err
	}),
	"UnregisterKvCacheEngineDrivenContext": on(func(s *Server, _ caller, q *mp.UnregisterKvCacheEngineDrivenContextRequest) (proto.Message, error) {
		s.workers.unregister(q.InstanceId)
		return &mp.UnregisterKvCacheEngineDrivenContextResponse{}, nil
	}),
	"PrepareStore": on(func(s *Server, c caller, q *mp.PrepareStoreRequest) (proto.Message, error) {
		return &mp.PrepareStoreResponse{EncodedContext: s.prepareStore(c, q)}, nil
	}),
	"CommitStore": on(func(s *Server, c caller, q *mp.CommitStoreRequest) (proto.Message, error) {
		return &mp.CommitStoreResponse{Success: s.commitStore(c, q)}, nil
	}),
	"PrepareRetrieve": on(func(s *Server, c caller, q *mp.PrepareRetrieveRequest) (proto.Message, error) {
		return s.prepareRetrieve(c, q), nil
	}),
	"CommitRetrieve": on(func(s *Server, c caller, q *mp.CommitRetrieveRequest) (proto.Message, error) {
		return &mp.CommitRetrieveResponse{Success: s.commitRetrieve(c, q)}, nil
	}),

	"RegisterKvCache": on(func(*Server, caller, *mp.RegisterKvCacheRequest) (proto.Message, error) {
		return nil, fmt.Errorf("lmcache: the engine asks that the server copies out of its GPU, which ringcache does not do; "+
			"set lmcache.mp.mp_transfer_mode to engine_driven in kv_connector_extra_config: %w", fs.ErrInvalid)
	}),
}

// answer handles a call. A panic ends neither the daemon nor the engine.
func (s *Server) answer(name string, m method, c caller, q proto.Message) (p proto.Message, err error) {
	began := time.Now()
	defer func() {
		s.took[name].Took(time.Since(began))
		if r := recover(); r != nil {
			s.log.Error("a call of an engine panicked", "call", name, "panic", r, "stack", string(debug.Stack()))
			if p, err = nothing[name], nil; p == nil {
				err = errors.New("lmcache: the server has a bug, which its log describes")
			}
		}
		if err != nil {
			s.refused(name, err)
		}
	}()
	if s.o.Tracer != nil {
		c.span = s.o.Tracer.Start("lmcache "+name, c.trace)
		defer func() {
			failure := ""
			if err != nil {
				failure = err.Error()
			}
			c.span.End(failure)
		}()
	}
	if load, ok := q.(*mp.PrepareRetrieveRequest); ok && !c.room.forAnswer(s.answerBytes(load)) {
		return nothing[name], nil // the call has ended
	}
	if !m.waits {
		defer s.takeTurn(c, q)()
	}
	return m.handle(s, c, q)
}

// Call is how long calls of a kind took, with what they waited for.
type Call struct {
	Name string
	latency.Counts
}

// Calls lists all kinds of calls, in the order of their names.
func (s *Server) Calls() []Call {
	out := make([]Call, 0, len(s.took))
	for _, name := range slices.Sorted(maps.Keys(s.took)) {
		out = append(out, Call{name, s.took[name].Counts()})
	}
	return out
}

// nothing are the answers to calls whose error an engine does not survive, or takes for pending, when there
// is nothing to store, to load or to find.
var nothing = map[string]proto.Message{
	"QueryPrefetchStatus": &mp.QueryPrefetchStatusResponse{ChunkCount: new(int64)},
	"WaitPrefetchStatus":  &mp.WaitPrefetchStatusResponse{ChunkCount: new(int64)},
	"PrepareStore":        &mp.PrepareStoreResponse{EncodedContext: appendContext(nil, nil, true, true)},
	"CommitStore":         &mp.CommitStoreResponse{},
	"PrepareRetrieve":     &mp.PrepareRetrieveResponse{},
	"CommitRetrieve":      &mp.CommitRetrieveResponse{},
}
