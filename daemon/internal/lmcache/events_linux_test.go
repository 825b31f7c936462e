package lmcache

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
)

// receivedEvents is a stream of events, as a client has it.
type receivedEvents struct {
	*engine
	receive func(*mp.KVEventBatch) error // io.EOF at the end
	cursor  int64
}

func (e *engine) subscribe(service string, instance, cursor int64, most int64) *receivedEvents {
	e.Helper()
	return e.subscribeBy(service, &mp.SubscribeKvEventsRequest{
		InstanceId: instance, ModelName: "org/model", Cursor: cursor, MaxEvents: most,
	})
}

func (e *engine) subscribeBy(service string, q *mp.SubscribeKvEventsRequest) *receivedEvents {
	e.Helper()
	if z, is := e.conn.(*zmqConn); is {
		s := z.subscribe(q)
		return &receivedEvents{engine: e, receive: s.receive, cursor: q.Cursor}
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), idHeader, e.id))
	e.Cleanup(cancel)
	stream, err := e.conn.(*grpc.ClientConn).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/lmcache.mp."+service+"/SubscribeKvEvents")
	require.NoError(e, err)
	require.NoError(e, stream.SendMsg(q))
	require.NoError(e, stream.CloseSend())
	return &receivedEvents{engine: e, receive: func(b *mp.KVEventBatch) error { return stream.RecvMsg(b) }, cursor: q.Cursor}
}

func (s *receivedEvents) next() *mp.KVEventBatch {
	s.Helper()
	b := &mp.KVEventBatch{}
	require.NoError(s, s.receive(b))
	require.True(s, b.Enabled)
	s.cursor = b.NextCursor
	return b
}

// records returns the next n records, which may come in several messages.
func (s *receivedEvents) records(n int) (all []*mp.KVEventRecord) {
	s.Helper()
	for len(all) < n {
		b := s.next()
		require.False(s, b.Lost)
		all = append(all, b.Events...)
	}
	require.Len(s, all, n)
	return all
}

// withQuickEvents makes a server look often.
func withQuickEvents(t testing.TB, change func(*bed)) *bed {
	b := newBed(t, change)
	b.server.events.every = time.Millisecond
	return b
}

// hashes are those of the chunks of a prompt.
func hashes(t testing.TB, tokens []int64) (out [][]byte) {
	t.Helper()
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: chunk})
	require.NoError(t, err)
	c := h.NewChain()
	require.NoError(t, c.Set((&engine{release: since057}).key("", tokens, 0, 0).Tokens))
	for i := range len(tokens) / chunk {
		out = append(out, append([]byte(nil), c.Hash(i)...))
	}
	return out
}

// TestEventsOfKV: what comes into memory is told with its tokens, and what leaves it.
func TestEventsOfKV(t *testing.T) {
	b := withQuickEvents(t, func(b *bed) { withDisk(b); b.mo.Size = 64 << 10 })
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 70)
	sum := hashes(t, tokens)
	s := e.subscribe("KVEventService", 1, 0, 1024)
	first := s.next()
	require.Empty(t, first.Events)
	require.False(t, first.Lost)
	require.NotZero(t, first.Incarnation)

	require.Equal(t, 4, e.store(of(e.key("w", tokens, 0, 64), 0), 1))
	for i, r := range s.records(4) {
		require.Equal(t, "stored", r.Kind)
		require.Equal(t, "CPU", r.Medium)
		require.Equal(t, "org/model", r.ModelName)
		require.EqualValues(t, i+1, r.Seq)
		require.Equal(t, [][]byte{sum[i]}, r.BlockHashes)
		require.Equal(t, tokens[i*chunk:(i+1)*chunk], r.TokenIds)
		if i == 0 {
			require.Nil(t, r.ParentBlockHash)
		} else {
			require.Equal(t, sum[i-1], r.ParentBlockHash)
		}
	}
	require.Zero(t, e.store(of(e.key("w", tokens, 0, 64), 0), 1), "it is there, and not told again")
	_, err := b.store.Drain(t.Context())
	require.NoError(t, err)

	// Other prompts need its room.
	there := map[string]bool{}
	gone := func() (n int) {
		for _, h := range sum {
			if !there[hex.EncodeToString(h)] {
				n++
			}
		}
		return n
	}
	take := func() {
		t.Helper()
		for _, r := range s.next().Events {
			there[hex.EncodeToString(r.BlockHashes[0])] = r.Kind == "stored"
		}
	}
	for _, h := range sum {
		there[hex.EncodeToString(h)] = true
	}
	for i := range 20 {
		e.store(of(e.key(fmt.Sprint("w", i), prompt(1000+i, 64), 0, 64), 0), 1)
		_, err := b.store.Drain(t.Context())
		require.NoError(t, err)
	}
	for gone() == 0 {
		take()
	}
	require.EqualValues(t, 4, e.lookUp(e.key("r", tokens, 0, 64)), "from the disk")
	for gone() > 0 {
		take()
	}
	e.end("r")
	e.must("ManagementService/Clear", &mp.ClearRequest{}, &mp.ClearResponse{})
	for len(there) > 0 {
		take()
		for h, is := range there {
			if !is {
				delete(there, h)
			}
		}
	}
	b.nothingHeld()
}

// TestEventsContinue: from a number on, in messages as large as wanted, of one model.
func TestEventsContinue(t *testing.T) {
	b := withQuickEvents(t, nil)
	e := b.engine("engine", since056)
	p := &mp.GetExperimentalResponse{}
	e.must("ControllerService/GetExperimental", &mp.GetExperimentalRequest{}, p)
	require.Equal(t, []string{eventCapability}, p.Names, "else a client of 0.5.6 does not subscribe")
	b.engine("new", since057).must("ManagementService/GetExperimental", &mp.GetExperimentalRequest{}, p)
	require.Empty(t, p.Names)
	e.register(1, 1)
	k := of(e.key("before", prompt(5000, 32), 0, 32), 0)
	require.Equal(t, 2, e.store(k, 1))
	s := e.subscribe("ObservabilityService", 1, 0, 3)
	s.next()
	require.Equal(t, 4, e.store(of(e.key("w", prompt(1, 64), 0, 64), 0), 1))
	require.Len(t, s.records(4), 4, "what was before the first subscription is not told")
	other := e.key("w", prompt(1, 32), 0, 32)
	other.ModelName = "another"
	e.must("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: 2, ModelName: "another", WorldSize: 1, BlockSize: 16, NumLayers: 2, HiddenDimSize: 8, DtypeStr: "float32",
	}, &mp.RegisterKvCacheEngineDrivenContextResponse{})
	require.Equal(t, 2, e.store(of(other, 0), 2))

	again := e.subscribe("ObservabilityService", 3, 0, 3)
	require.Len(t, again.next().Events, 3)
	require.Len(t, again.next().Events, 1)
	require.EqualValues(t, 6, again.cursor, "those of another model are passed over")
	later := e.subscribe("ObservabilityService", 4, 2, 1024)
	b2 := later.next()
	require.False(t, b2.Lost)
	require.Len(t, b2.Events, 2)
	future := e.subscribe("ObservabilityService", 5, 99, 1024)
	require.True(t, future.next().Lost, "that number is of another server")

	// A worker that subscribes again has one stream.
	next := e.subscribe("ObservabilityService", 3, again.cursor, 3)
	require.ErrorIs(t, again.receive(&mp.KVEventBatch{}), io.EOF)
	next.next()

	for _, q := range []*mp.SubscribeKvEventsRequest{{Cursor: -1, MaxEvents: 1}, {}, {MaxEvents: 1025}} {
		bad := e.subscribe("ObservabilityService", 6, q.Cursor, q.MaxEvents)
		require.ErrorContains(t, bad.receive(&mp.KVEventBatch{}), "lmcache: the cursor is")
	}
}

// TestEndOfTheServerEndsSubscriptions, at once.
func TestEndOfTheServerEndsSubscriptions(t *testing.T) {
	b := withQuickEvents(t, nil)
	s := b.engine("engine", since057).subscribe("KVEventService", 1, 0, 1)
	s.next()
	b.carrier.Shutdown(t.Context())
	require.ErrorIs(t, s.receive(&mp.KVEventBatch{}), io.EOF)
}

// TestEndOfTheServerWithASubscriberThatReadsNothing does not wait for it.
func TestEndOfTheServerWithASubscriberThatReadsNothing(t *testing.T) {
	b := withQuickEvents(t, nil)
	b.engine("engine", since057).subscribe("KVEventService", 1, 0, 1024).next()
	e := &b.server.events
	e.mu.Lock()
	for range maxRecords {
		e.append(&knownChunk{chunkKey: chunkKey{model: "org/model", name: fmt.Sprintf("%064x", e.next)}}, false)
	}
	e.mu.Unlock()
	b.eventually("the subscription waits for its client", func() bool {
		var stacks bytes.Buffer
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 2))
		return strings.Contains(stacks.String(), "writeQuota).get")
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b.carrier.Shutdown(ctx)
	require.NoError(t, ctx.Err())
}

// TestEventsHaveBounds: of records, of tokens, and of subscriptions. What is forgotten is told to be gone.
func TestEventsHaveBounds(t *testing.T) {
	b := newBed(t, nil)
	e := &b.server.events
	e.began = true
	const size = 1 << 16
	worker := &instance{Layout: kv.Layout{ChunkTokens: size, Groups: []kv.Group{{}}}}
	store := func(n int) {
		q := &call{key: rangeKey{model: "m", tokens: make([]byte, 4*size)}, worker: worker, objects: objectsOf([]string{"s"}, []string{fmt.Sprintf("%064x", n)}, 0)}
		e.stored(q, keysOf(q.objects))
	}
	const known = maxEventTokens / size
	for n := range 3 * known {
		store(n)
	}
	require.Len(t, e.known, known)
	require.LessOrEqual(t, e.logTokens, maxEventTokens)
	batch, _ := e.read("m", 0, 1024)
	require.True(t, batch.Lost)
	stored, removed := 0, 0
	for cursor := batch.NextCursor; len(batch.Events) > 0; cursor = batch.NextCursor {
		for _, r := range batch.Events {
			if r.Kind == "stored" {
				stored++
			} else {
				removed++
			}
		}
		batch, _ = e.read("m", cursor, 1024)
		require.False(t, batch.Lost)
		tokens := 0
		for _, r := range batch.Events {
			tokens += len(r.TokenIds)
		}
		require.LessOrEqual(t, tokens, batchTokens)
	}
	require.Equal(t, known, stored)
	require.GreaterOrEqual(t, removed, known-1)
	for range maxRecords {
		e.append(&knownChunk{}, false)
	}
	require.Len(t, e.log, maxRecords)
	require.Zero(t, e.logTokens)

	for i := range int64(maxSubscribers) {
		e.subscribers[i] = &subscriber{func() {}}
	}
	_, err := e.subscribe(1000, func() {})
	require.Error(t, err)
	clear(e.subscribers)
}
