package lmcache

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

const (
	chunk      = 16 // tokens
	chunkBytes = 2 * 2 * chunk * 8 * 4
)

// prompt returns n tokens, which differ from those of another first one.
func prompt(first, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(first + i*7%50_000)
	}
	return out
}

// key makes a key of a scheduler, or of a worker.
func (e *engine) key(request string, tokens []int64, from, to int) *mp.IpcCacheServerKey {
	k := &mp.IpcCacheServerKey{ModelName: "org/model", WorldSize: 1, Start: int64(from), End: int64(to), RequestId: request, NumKvReaders: 1}
	for _, t := range tokens {
		if e.release == since056 {
			k.Tokens = protowire.AppendVarint(k.Tokens, uint64(t))
		} else {
			k.Tokens = binary.BigEndian.AppendUint32(k.Tokens, uint32(t))
		}
	}
	return k
}

func of(k *mp.IpcCacheServerKey, worker int64) *mp.IpcCacheServerKey {
	k = proto.CloneOf(k)
	k.WorkerId = &worker
	return k
}

// register registers a worker of a model whose chunks have chunkBytes.
func (e *engine) register(instance int64, world int64) *mp.RegisterKvCacheEngineDrivenContextResponse {
	e.Helper()
	p := &mp.RegisterKvCacheEngineDrivenContextResponse{}
	e.must("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: instance, ModelName: "org/model", WorldSize: world, BlockSize: 16, NumLayers: 2, HiddenDimSize: 8, DtypeStr: "float32",
	}, p)
	return p
}

// lookUp looks up, and returns the chunks that were found, when they are.
func (e *engine) lookUp(k *mp.IpcCacheServerKey) int64 {
	e.Helper()
	e.must("LookupService/Lookup", &mp.LookupRequest{Key: k, TpSize: 1}, &mp.LookupResponse{})
	var n int64
	e.eventually("the look-up has an answer", func() bool {
		p := &mp.QueryPrefetchStatusResponse{}
		e.must("LookupService/QueryPrefetchStatus", &mp.QueryPrefetchStatusRequest{RequestId: k.RequestId}, p)
		n = p.GetChunkCount()
		return p.ChunkCount != nil
	})
	return n
}

// slots are the places of a context.
func slots(t testing.TB, context []byte) (offsets []int64, chunks []int64) {
	t.Helper()
	c := contextOf(t, context)
	for _, s := range c["slots"].([]any) {
		offsets = append(offsets, s.(map[string]any)["offset"].(int64))
	}
	if list, ok := c["chunk_indices"].([]any); ok {
		for _, n := range list {
			chunks = append(chunks, n.(int64))
		}
	}
	return offsets, chunks
}

func (e *engine) prepareStore(k *mp.IpcCacheServerKey, instance int64) (offsets, chunks []int64) {
	e.Helper()
	p := &mp.PrepareStoreResponse{}
	e.must("EngineDrivenService/PrepareStore", &mp.PrepareStoreRequest{Key: k, InstanceId: instance}, p)
	return slots(e, p.EncodedContext)
}

func (e *engine) commitStore(k *mp.IpcCacheServerKey, instance int64, data []byte) bool {
	e.Helper()
	p := &mp.CommitStoreResponse{}
	e.must("EngineDrivenService/CommitStore", &mp.CommitStoreRequest{Key: k, InstanceId: instance, Data: data}, p)
	return p.Success
}

// store stores the chunks of a range, each with bytes of the tokens' and its own.
func (e *engine) store(k *mp.IpcCacheServerKey, instance int64) int {
	e.Helper()
	offsets, chunks := e.prepareStore(k, instance)
	for i, at := range offsets {
		copy(e.segment()[at:at+chunkBytes], content(k, int64(int(k.Start)/chunk)+chunks[i]))
	}
	if len(offsets) > 0 {
		require.True(e, e.commitStore(k, instance, nil))
	}
	return len(offsets)
}

// content is what a test stores for a chunk.
func content(k *mp.IpcCacheServerKey, n int64) []byte {
	out := make([]byte, chunkBytes)
	for i := range out {
		out[i] = byte(int64(i)*3 + n*11 + k.GetWorkerId()*101 + int64(len(k.CacheSalt)))
	}
	return out
}

// load loads the chunks of a range, and reports whether they were there. It checks their bytes.
func (e *engine) load(k *mp.IpcCacheServerKey, instance int64) bool {
	e.Helper()
	p := &mp.PrepareRetrieveResponse{}
	e.must("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: k, InstanceId: instance}, p)
	if p.Success {
		offsets, _ := slots(e, p.EncodedContext)
		require.Len(e, offsets, int(k.End)/chunk-int(k.Start)/chunk)
		for i, at := range offsets {
			require.Equal(e, content(k, k.Start/chunk+int64(i)), e.segment()[at:at+chunkBytes])
		}
	}
	e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: k, InstanceId: instance}, &mp.CommitRetrieveResponse{})
	return p.Success
}

func (e *engine) end(request string) {
	e.Helper()
	e.must("LookupService/EndSession", &mp.EndSessionRequest{RequestId: request}, &mp.EndSessionResponse{})
}

// nothingHeld requires that no lock and no reservation is left.
func (b *bed) nothingHeld() {
	b.Helper()
	pinned, reserved := b.held()
	assert.Zero(b, pinned, "locks")
	assert.Zero(b, reserved, "reservations")
}

// TestBothReleasesShareObjects: what one release has stored the other one loads.
func TestBothReleasesShareObjects(t *testing.T) {
	for _, r := range []release{since056, since057} {
		t.Run(r.String(), func(t *testing.T) {
			b := newBed(t, nil)
			other := since056 + since057 - r
			first, second := b.engine("first", r), b.engine("second", other)
			first.register(1, 1)
			second.register(2, 1)
			tokens := prompt(1, 100)
			require.Zero(t, first.lookUp(first.key("r1", tokens, 0, 96)))
			require.Equal(t, 4, first.store(of(first.key("r1", tokens, 0, 64), 0), 1))
			require.Equal(t, 2, first.store(of(first.key("r1", tokens, 64, 96), 0), 1))
			require.Zero(t, first.store(of(first.key("r1", tokens, 0, 96), 0), 1), "all is there")
			first.end("r1")
			require.EqualValues(t, 6, second.lookUp(second.key("r2", tokens, 0, 96)))
			require.True(t, second.load(of(second.key("r2", tokens, 0, 96), 0), 2))
			second.end("r2")
			b.nothingHeld()
			// Other tokens, and another salt, are not there.
			require.Zero(t, second.lookUp(second.key("r3", prompt(2, 100), 0, 96)))
			salted := second.key("r4", tokens, 0, 96)
			salted.CacheSalt = "tenant"
			require.Zero(t, second.lookUp(salted))
			second.end("r3")
			second.end("r4")
			b.nothingHeld()
		})
	}
}

// TestSecondLookUp: of 0.5.6 it replaces the first one's locks; of 0.5.7 it adds to them, and extra ranges
// that come before the load end the first one's alone.
func TestSecondLookUp(t *testing.T) {
	b := newBed(t, nil)
	old, later := b.engine("old", since056), b.engine("later", since057)
	old.register(1, 1)
	later.register(2, 1)
	tokens := prompt(1, 64)
	require.Equal(t, 4, old.store(of(old.key("w", tokens, 0, 64), 0), 1))

	require.EqualValues(t, 2, old.lookUp(old.key("r1", tokens[:32], 0, 32)))
	require.EqualValues(t, 4, old.lookUp(old.key("r1", tokens, 0, 64)))
	require.True(t, old.load(of(old.key("r1", tokens, 0, 64), 0), 1))
	b.nothingHeld()

	require.EqualValues(t, 4, later.lookUp(later.key("r2", tokens, 32, 64)))
	require.EqualValues(t, 4, later.lookUp(later.key("r2", tokens, 0, 64)))
	pinned, _ := b.held()
	require.Equal(t, 2+4, pinned)
	free := &mp.FreeLookupLocksRequest{Key: later.key("r2", tokens, 0, 0), ExtraRanges: []*mp.TokenRange{{Start: 32, End: 64}}}
	later.must("LookupService/FreeLookupLocks", free, &mp.FreeLookupLocksResponse{})
	pinned, _ = b.held()
	require.Equal(t, 4, pinned, "the second look-up's")
	require.True(t, later.load(of(later.key("r2", tokens, 0, 64), 0), 2))
	b.nothingHeld()
	old.end("r1")
	later.end("r2")
}

// TestFreeOfAPartOfAHit: the end of what the engine has itself need not be that of a chunk.
func TestFreeOfAPartOfAHit(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since056)
	e.register(1, 1)
	tokens := prompt(1, 64)
	require.Equal(t, 4, e.store(of(e.key("w", tokens, 0, 64), 0), 1))
	require.EqualValues(t, 4, e.lookUp(e.key("r", tokens, 0, 64)))
	e.must("LookupService/FreeLookupLocks", &mp.FreeLookupLocksRequest{Key: e.key("r", tokens, 0, 40)}, &mp.FreeLookupLocksResponse{})
	pinned, _ := b.held()
	require.Equal(t, 2, pinned)
	require.True(t, e.load(of(e.key("r", tokens, 40, 64), 0), 1))
	b.nothingHeld()
	e.end("r")
}

// TestFullMemoryStoresAPrefix: what has no room is not stored, nor what comes behind it; and it is no error.
func TestFullMemoryStoresAPrefix(t *testing.T) {
	b := newBed(t, func(b *bed) { b.mo.Size = 16 << 10 })
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 320)
	_, chunks := e.prepareStore(of(e.key("r1", tokens, 0, 320), 0), 1)
	require.NotEmpty(t, chunks)
	require.Less(t, len(chunks), 20)
	for i, n := range chunks {
		require.EqualValues(t, i, n)
	}
	_, none := e.prepareStore(of(e.key("r2", prompt(9, 64), 0, 64), 0), 1)
	require.Empty(t, none)
	require.True(t, e.commitStore(of(e.key("r1", tokens, 0, 320), 0), 1, nil))
	require.EqualValues(t, len(chunks), e.lookUp(e.key("r3", tokens, 0, 320)))
	e.end("r3")
	b.nothingHeld()
}

// TestReservedIsAsThere: of two requests that store the same chunks in one step, the second has nothing to
// store; and only the first one's commit publishes.
func TestReservedIsAsThere(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since056)
	e.register(1, 1)
	tokens := prompt(1, 48)
	k1, k2 := of(e.key("r1", tokens, 0, 48), 0), of(e.key("r2", tokens, 0, 48), 0)
	offsets, _ := e.prepareStore(k1, 1)
	require.Len(t, offsets, 3)
	offsets, _ = e.prepareStore(k2, 1)
	require.Empty(t, offsets)
	require.Zero(t, e.lookUp(e.key("r3", tokens, 0, 48)), "nothing is committed")
	require.False(t, e.commitStore(k2, 1, nil))
	require.True(t, e.commitStore(k1, 1, nil))
	require.False(t, e.commitStore(k1, 1, nil), "a second time")
	require.EqualValues(t, 3, e.lookUp(e.key("r4", tokens, 0, 48)))
	e.end("r3")
	e.end("r4")
	b.nothingHeld()
}

// TestUnknownWorker: it gets nothing, and no error, which would end its engine; and it is told once to
// register.
func TestUnknownWorker(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	tokens := prompt(1, 48)
	k := of(e.key("r", tokens, 0, 48), 0)
	offsets, _ := e.prepareStore(k, 7)
	require.Empty(t, offsets)
	require.False(t, e.commitStore(k, 7, nil))
	require.False(t, e.load(k, 7))
	require.Zero(t, e.lookUp(e.key("r", tokens, 0, 48)))
	ping := func() bool {
		p, id := &mp.PingResponse{}, int64(7)
		e.must("ManagementService/Ping", &mp.PingRequest{InstanceId: &id}, p)
		return p.Ok
	}
	require.False(t, ping())
	require.True(t, ping())
	e.register(7, 1)
	require.True(t, ping())
	require.Equal(t, 3, e.store(k, 7))
	e.end("r")
	b.nothingHeld()
}

// TestRestart: registrations, releases, chunks, locks and reservations are there when the server is.
func TestRestart(t *testing.T) {
	for _, r := range []release{since056, since057} {
		t.Run(r.String(), func(t *testing.T) {
			b := newBed(t, nil)
			e := b.engine("engine", r)
			e.register(1, 1)
			tokens := prompt(1, 96)
			require.Equal(t, 2, e.store(of(e.key("w", tokens, 0, 32), 0), 1))
			require.EqualValues(t, 2, e.lookUp(e.key("r", tokens, 0, 96)))
			k := of(e.key("w", tokens, 32, 96), 0)
			offsets, _ := e.prepareStore(k, 1)
			require.Len(t, offsets, 4)
			for i, at := range offsets {
				copy(e.segment()[at:], content(k, int64(2+i)))
			}
			b.restart()
			// The first calls say nothing of the release.
			require.True(t, e.load(of(e.key("r", tokens, 0, 32), 0), 1))
			require.True(t, e.commitStore(k, 1, nil))
			e.end("r")
			b.nothingHeld()
			require.EqualValues(t, 6, e.lookUp(e.key("r2", tokens, 0, 96)))
			require.True(t, e.load(of(e.key("r2", tokens, 0, 96), 0), 1))
			e.end("r2")
			b.nothingHeld()
		})
	}
}

// TestAnotherSegmentForgetsWorkers: a worker that has mapped the segment before would write into nothing.
func TestAnotherSegmentForgetsWorkers(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	k := of(e.key("w", prompt(1, 32), 0, 32), 0)
	offsets, _ := e.prepareStore(k, 1)
	require.Len(t, offsets, 2)
	b.stop()
	b.mo.Name = "pool2"
	b.start()
	require.False(t, e.commitStore(k, 1, nil))
	offsets, _ = e.prepareStore(k, 1)
	require.Empty(t, offsets)
	b.nothingHeld()
}

// TestPickleIsNeverRead: a worker of 0.5.6 that can't map the segment stores and loads nothing from then on.
func TestPickleIsNeverRead(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since056)
	e.register(1, 1)
	k := of(e.key("w", prompt(1, 32), 0, 32), 0)
	offsets, _ := e.prepareStore(k, 1)
	require.Len(t, offsets, 2)
	require.False(t, e.commitStore(k, 1, []byte("\x80\x04.")))
	b.nothingHeld()
	offsets, _ = e.prepareStore(k, 1)
	require.Empty(t, offsets)
	require.False(t, e.load(k, 1))
	b.nothingHeld()
}

// TestWorkerThatCanNotMap: one of 0.5.7 sends bytes in silence, and gets bytes from then on.
func TestWorkerThatCanNotMap(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	require.Equal(t, "pool", e.register(1, 1).ShmName)
	k := of(e.key("w", prompt(1, 32), 0, 32), 0)
	offsets, _ := e.prepareStore(k, 1)
	require.Len(t, offsets, 2)
	require.True(t, e.commitStore(k, 1, e.body(k)))
	p := &mp.PrepareStoreResponse{}
	e.must("EngineDrivenService/PrepareStore", &mp.PrepareStoreRequest{Key: k, InstanceId: 1}, p)
	require.Empty(t, p.EncodedContext)
	got := &mp.PrepareRetrieveResponse{}
	e.must("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: k, InstanceId: 1}, got)
	require.True(t, got.Success)
	require.Equal(t, e.body(k), got.Data)
	e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: k, InstanceId: 1}, &mp.CommitRetrieveResponse{})
	b.nothingHeld()
}

// TestTwoWorkers: a chunk is a hit if both have stored theirs; each load ends its own lock.
func TestTwoWorkers(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("scheduler", since056)
	workers := []*engine{b.engine("worker0", since056), b.engine("worker1", since056)}
	tokens := prompt(1, 48)
	two := func(k *mp.IpcCacheServerKey) *mp.IpcCacheServerKey { k.WorldSize = 2; return k }
	for i, w := range workers {
		w.register(int64(i), 2)
	}
	require.Equal(t, 3, workers[0].store(of(two(e.key("w", tokens, 0, 48)), 0), 0))
	require.Zero(t, e.lookUp(two(e.key("r1", tokens, 0, 48))))
	b.nothingHeld()
	require.Equal(t, 2, workers[1].store(of(two(e.key("w", tokens, 0, 32)), 1), 1))
	require.EqualValues(t, 2, e.lookUp(two(e.key("r2", tokens, 0, 48))))
	pinned, _ := b.held()
	require.Equal(t, 4, pinned)
	for i, w := range workers {
		require.True(t, w.load(of(two(e.key("r2", tokens, 0, 32)), int64(i)), int64(i)))
		pinned, _ := b.held()
		require.Equal(t, 2-2*i, pinned)
	}
	e.end("r1")
	e.end("r2")
	b.nothingHeld()
}

// TestWorkersThatShareObjects: each of several readers ends its own read of a chunk.
func TestWorkersThatShareObjects(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 32)
	require.Equal(t, 2, e.store(of(e.key("w", tokens, 0, 32), 0), 1))
	k := e.key("r", tokens, 0, 32)
	k.NumKvReaders = 2
	require.EqualValues(t, 2, e.lookUp(k))
	require.True(t, e.load(of(k, 0), 1))
	pinned, _ := b.held()
	require.Equal(t, 2, pinned, "for the other reader")
	require.True(t, e.load(of(k, 0), 1))
	b.nothingHeld()
	e.end("r")
}

// TestHitOnDisk: a look-up is pending until the disk has given what memory lacks.
func TestHitOnDisk(t *testing.T) {
	b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 64 << 10 })
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 64)
	require.Equal(t, 4, e.store(of(e.key("w", tokens, 0, 64), 0), 1))
	e.pushOut()
	e.must("LookupService/Lookup", &mp.LookupRequest{Key: e.key("r", tokens, 0, 64)}, &mp.LookupResponse{})
	p := &mp.QueryPrefetchStatusResponse{}
	e.must("LookupService/WaitPrefetchStatus", &mp.WaitPrefetchStatusRequest{RequestId: "r", Timeout: 25}, p)
	require.EqualValues(t, 4, p.GetChunkCount())
	require.True(t, e.load(of(e.key("r", tokens, 0, 64), 0), 1))
	e.end("r")
	b.nothingHeld()
}

// TestLookUpBehindTokensThatTheEngineHas: a look-up that starts behind the tokens of the engine's own prefix
// cache finds what is on disk, although nobody asked for the chunk in front of it, which memory has no more.
func TestLookUpBehindTokensThatTheEngineHas(t *testing.T) {
	b := newBed(t, func(b *bed) { withDisk(b); b.mo.Size = 64 << 10 })
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 64)
	require.Equal(t, 4, e.store(of(e.key("w", tokens, 0, 64), 0), 1))
	e.pushOut()
	require.EqualValues(t, 4, e.lookUp(e.key("r", tokens, 32, 64)))
	require.True(t, e.load(of(e.key("r", tokens, 32, 64), 0), 1))
	e.end("r")
	b.nothingHeld()
	require.EqualValues(t, 4, e.lookUp(e.key("r", tokens, 0, 64)), "the chunks in front of it come when they are asked for")
	e.end("r")
	b.nothingHeld()
}

// pushOut stores so much that memory has nothing of before.
func (e *engine) pushOut() {
	e.Helper()
	_, err := e.bed.store.Drain(e.Context())
	require.NoError(e, err)
	for i := range 20 {
		e.store(of(e.key(fmt.Sprint("w", i), prompt(1000+i, 64), 0, 64), 0), 1)
		_, err := e.bed.store.Drain(e.Context())
		require.NoError(e, err)
	}
}

// TestReleaseInDoubtFindsNothing: varints of a client whose release nobody knows are never read as tokens.
func TestReleaseInDoubtFindsNothing(t *testing.T) {
	b := newBed(t, nil)
	known := b.engine("known", since056)
	known.register(1, 1)
	tokens := prompt(1, 32)
	require.Equal(t, 2, known.store(of(known.key("w", tokens, 0, 32), 0), 1))
	doubtful := b.engine("doubtful", unknown)
	b.server.mu.Lock()
	delete(b.server.state.Clients, hexOf([]byte(doubtful.id)))
	delete(b.server.served, hexOf([]byte(doubtful.id)))
	b.server.mu.Unlock()
	require.Zero(t, doubtful.lookUp(known.key("r", tokens, 0, 32)))
	packed := b.engine("packed", since057).key("r", tokens, 0, 32)
	require.EqualValues(t, 2, doubtful.lookUp(packed), "four bytes each, of which the first is zero, are those of 0.5.7")
	doubtful.end("r")
	b.nothingHeld()
}

// TestForeignTransferIsRefusedAtRegistration: a server that copies out of a GPU is another one.
func TestForeignTransferIsRefusedAtRegistration(t *testing.T) {
	e := newBed(t, nil).engine("engine", since057)
	err := e.call("LMCacheDrivenService/RegisterKvCache", &mp.RegisterKvCacheRequest{}, &mp.RegisterKvCacheResponse{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "engine_driven")
}

// TestClearLeavesOtherObjects: it deletes KV, and no objects of other protocols.
func TestClearLeavesOtherObjects(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 32)
	require.Equal(t, 2, e.store(of(e.key("w", tokens, 0, 32), 0), 1))
	b.put("encoder", "output")
	e.must("ManagementService/Clear", &mp.ClearRequest{}, &mp.ClearResponse{})
	b.eventually("the chunks are gone", func() bool { return b.level.Usage().Objects == 1 })
	require.Zero(t, e.lookUp(e.key("r", tokens, 0, 32)))
	e.end("r")
}

// TestMalformedKeysOfDataCallsAreNoErrors: an error ends the engine.
func TestMalformedKeysOfDataCallsAreNoErrors(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	good := of(e.key("r", prompt(1, 32), 0, 32), 0)
	for name, change := range map[string]func(k *mp.IpcCacheServerKey){
		"tokens":   func(k *mp.IpcCacheServerKey) { k.Tokens = k.Tokens[:5] },
		"model":    func(k *mp.IpcCacheServerKey) { k.ModelName = "" },
		"worker":   func(k *mp.IpcCacheServerKey) { *k.WorkerId = 3 },
		"range":    func(k *mp.IpcCacheServerKey) { k.Start = -1 },
		"world":    func(k *mp.IpcCacheServerKey) { k.WorldSize = 1 << 40 },
		"salt":     func(k *mp.IpcCacheServerKey) { k.CacheSalt = "a@b" },
		"backward": func(k *mp.IpcCacheServerKey) { k.Start, k.End = 32, 16 },
		"beyond":   func(k *mp.IpcCacheServerKey) { k.Start, k.End = 1<<20, 1<<21 },
	} {
		k := proto.CloneOf(good)
		change(k)
		offsets, _ := e.prepareStore(k, 1)
		require.Empty(t, offsets, name)
		require.False(t, e.commitStore(k, 1, nil), name)
	}
	b.nothingHeld()
}
