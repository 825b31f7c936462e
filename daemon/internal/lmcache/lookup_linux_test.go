package lmcache

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/tier"
)

func inWorld(k *mp.IpcCacheServerKey, workers int64) *mp.IpcCacheServerKey {
	k.WorldSize = workers
	return k
}

// TestWorkersWithOtherGroups: there is no prefix that both have, and nothing is found.
func TestWorkersWithOtherGroups(t *testing.T) {
	b := newBed(t, nil)
	e, w0, w1 := b.engine("scheduler", since057), b.engine("worker0", since057), b.engine("worker1", since057)
	g := &mp.GroupLayout{NumLayers: 2, HiddenDimSize: 8, DtypeStr: "float32"}
	w0.must("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: 10, ModelName: "org/model", WorldSize: 2, BlockSize: 16, GroupLayouts: []*mp.GroupLayout{g, g},
	}, &mp.RegisterKvCacheEngineDrivenContextResponse{})
	w1.register(11, 2)
	tokens := prompt(1, 64)
	require.Equal(t, 4, w1.store(of(inWorld(e.key("w", tokens, 0, 64), 2), 1), 11))
	k := of(inWorld(e.key("w", tokens, 0, 64), 2), 0)
	offsets, _ := w0.prepareStore(k, 10)
	require.Len(t, offsets, 8)
	require.True(t, w0.commitStore(k, 10, nil))
	require.Zero(t, e.lookUp(inWorld(e.key("r", tokens, 0, 64), 2)))
	e.end("r")
}

// TestDiskIsAskedForAllWorkers: the first look-up waits for what each worker has on disk.
func TestDiskIsAskedForAllWorkers(t *testing.T) {
	b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 128 << 10 })
	const workers = 4
	e := b.engine("scheduler", since057)
	var all []*engine
	store := func(request string, tokens []int64) {
		for i, w := range all {
			w.store(of(inWorld(e.key(request, tokens, 0, 64), workers), int64(i)), int64(i))
		}
		_, err := b.store.Drain(t.Context())
		require.NoError(t, err)
	}
	for i := range int64(workers) {
		all = append(all, b.engine(fmt.Sprint("worker", i), since057))
		all[i].register(i, workers)
	}
	tokens := prompt(1, 64)
	store("w", tokens)
	for i := range 12 {
		store(fmt.Sprint("w", i), prompt(1000+i, 64))
	}
	require.EqualValues(t, 4, e.lookUp(inWorld(e.key("r", tokens, 0, 64), workers)))
	e.end("r")
	b.nothingHeld()
}

// hanging is a level whose reads take until it is released.
type hanging struct {
	tier.Level
	release chan struct{}
}

func (h *hanging) Get(ctx context.Context, gets []tier.Get) {
	select {
	case <-h.release:
	case <-ctx.Done():
	}
	h.Level.Get(ctx, gets)
}

// hangingBed has a disk that hangs, which has the four chunks of a prompt that memory has no more.
func hangingBed(t *testing.T) (e *engine, tokens []int64) {
	h := &hanging{release: make(chan struct{})}
	b := newBed(t, func(b *bed) {
		withDisk(b)
		h.Level = b.lower[0].Level
		b.lower[0].Level = h
		b.mo.Size = 64 << 10
	})
	t.Cleanup(func() { close(h.release) })
	e, tokens = b.engine("engine", since057), prompt(1, 64)
	e.register(1, 1)
	require.Equal(t, 4, e.store(of(e.key("w", tokens, 0, 64), 0), 1))
	e.pushOut()
	return e, tokens
}

// TestLevelThatHangs: a look-up decides with what memory has when its time is over.
func TestLevelThatHangs(t *testing.T) {
	e, tokens := hangingBed(t)
	e.must("LookupService/Lookup", &mp.LookupRequest{Key: e.key("r", tokens, 0, 64)}, &mp.LookupResponse{})
	p := &mp.QueryPrefetchStatusResponse{}
	e.must("LookupService/QueryPrefetchStatus", &mp.QueryPrefetchStatusRequest{RequestId: "r"}, p)
	require.Nil(t, p.ChunkCount)
	e.server.patience = 0
	e.must("LookupService/QueryPrefetchStatus", &mp.QueryPrefetchStatusRequest{RequestId: "r"}, p)
	require.NotNil(t, p.ChunkCount)
	require.Zero(t, *p.ChunkCount)
	e.nothingHeld()
	e.end("r")
}

// TestWaitEndsWithItsCall: nobody waits for a status that nobody reads.
func TestWaitEndsWithItsCall(t *testing.T) {
	e, tokens := hangingBed(t)
	e.must("LookupService/Lookup", &mp.LookupRequest{Key: e.key("r", tokens, 0, 64)}, &mp.LookupResponse{})
	c := e.server.served[hexOf([]byte(e.id))]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	require.Nil(t, e.server.waitForStatus(ctx, caller{conn: c.conn, id: c.id}, "r", 1e9))
	require.Less(t, time.Since(begin), maxWait)
	e.end("r")
}

// TestRefusedClientHasAStatus: an engine takes an error for pending, and would ask for ever.
func TestRefusedClientHasAStatus(t *testing.T) {
	b := newBed(t, nil)
	b.engine("first", since057).register(1, 1)
	l := b.registry.Limits()
	l.Sessions = 1
	b.registry.SetLimits(l)
	e := b.engine("second", since057)
	p := &mp.QueryPrefetchStatusResponse{}
	e.must("LookupService/QueryPrefetchStatus", &mp.QueryPrefetchStatusRequest{RequestId: "r"}, p)
	require.NotNil(t, p.ChunkCount)
	require.Zero(t, *p.ChunkCount)
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	require.Len(t, b.server.served, 1, "a client that was refused takes no memory")
}

// TestEnginesThatNumberRequestsAlike: a load ends the locks of its own engine's look-up.
func TestEnginesThatNumberRequestsAlike(t *testing.T) {
	b := newBed(t, nil)
	first, second := b.engine("first", since057), b.engine("second", since057)
	first.register(1, 1)
	second.register(2, 1)
	require.Equal(t, 2, first.store(of(first.key("w", prompt(1, 32), 0, 32), 0), 1))
	require.Equal(t, 2, second.store(of(second.key("v", prompt(9, 32), 0, 32), 0), 2))
	require.EqualValues(t, 2, first.lookUp(first.key("0", prompt(1, 32), 0, 32)))
	require.EqualValues(t, 2, second.lookUp(second.key("0", prompt(9, 32), 0, 32)))
	require.True(t, first.load(of(first.key("0", prompt(1, 32), 0, 32), 0), 1))
	leases := b.store.Leases()
	require.Len(t, leases, 1)
	assert.Contains(t, leases[0].ID, hexOf([]byte(second.id)))
	require.Len(t, leases[0].Pinned, 2)
	first.end("0")
	second.end("0")
	b.nothingHeld()
}

// TestRefusedSecondLookUpFindsNothing: what the first one has found is no answer to it.
func TestRefusedSecondLookUpFindsNothing(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(1, 32), 0, 32), 0), 1))
	require.EqualValues(t, 2, e.lookUp(e.key("r", prompt(1, 32), 0, 32)))
	k := e.key("r", prompt(2, 32), 0, 32)
	k.Tokens = k.Tokens[:5]
	require.Error(t, e.call("LookupService/Lookup", &mp.LookupRequest{Key: k}, &mp.LookupResponse{}))
	p := &mp.QueryPrefetchStatusResponse{}
	e.must("LookupService/QueryPrefetchStatus", &mp.QueryPrefetchStatusRequest{RequestId: "r"}, p)
	require.NotNil(t, p.ChunkCount)
	require.Zero(t, *p.ChunkCount)
	e.end("r")
	b.nothingHeld()
}

// TestLookUpOfVeryMuch: it finds nothing, and makes no keys.
func TestLookUpOfVeryMuch(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 255)
	require.Zero(t, e.lookUp(inWorld(e.key("r", prompt(1, 256<<10), 0, 256<<10), 255)))
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	require.Nil(t, b.server.served[hexOf([]byte(e.id))].requests["r"].lookups[0].names)
}

// TestRequestsThatNobodyEnds: an engine that takes the server for unhealthy says nothing any more. What has
// ended by time is forgotten with a later call.
func TestRequestsThatNobodyEnds(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	e.lookUp(e.key("r", prompt(1, 32), 0, 32))
	offsets, _ := e.prepareStore(of(e.key("r", prompt(1, 32), 0, 32), 0), 1)
	require.Len(t, offsets, 2)
	c := b.server.served[hexOf([]byte(e.id))]
	c.mu.Lock()
	require.Len(t, c.requests, 1)
	require.Len(t, c.stores, 1)
	long := time.Now().Add(-time.Hour)
	c.swept, c.requests["r"].lookups[0].begun = long, long
	for _, st := range c.stores {
		st.at = long
	}
	c.mu.Unlock()
	e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{})
	require.Empty(t, c.requests)
	require.Empty(t, c.stores)
	require.Zero(t, b.server.owners.requests())
	require.True(t, e.commitStore(of(e.key("r", prompt(1, 32), 0, 32), 0), 1, nil), "the lease still knows")
}

// TestUseIsCounted: status and log of the daemon show what its clients find and store.
func TestUseIsCounted(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(1, 48), 0, 32), 0), 1))
	require.EqualValues(t, 2, e.lookUp(e.key("r", prompt(1, 48), 0, 48)))
	use := b.registry.Counts().Use
	require.EqualValues(t, 2, use.Stored)
	require.EqualValues(t, 2, use.Hits)
	require.EqualValues(t, 1, use.Misses)
	e.end("r")
}
