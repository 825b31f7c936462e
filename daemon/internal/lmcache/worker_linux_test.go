package lmcache

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/registry"
)

// TestPanicIsNoError: it ends neither the daemon nor the engine.
func TestPanicIsNoError(t *testing.T) {
	b := newBed(t, func(b *bed) { b.o.Logger = nil })
	b.engine("engine", since057)
	c := caller{ctx: t.Context(), conn: &connection{client: &registry.Client{}}, id: "0123456789abcdef"}
	for service, names := range services {
		for _, name := range names {
			m := methods[name]
			m.handle = func(*Server, caller, proto.Message) (proto.Message, error) { panic("a bug") }
			p, err := b.server.answer(name, m, c, m.request())
			if service == "EngineDrivenService" && (name[:6] == "Prepar" || name[:6] == "Commit") || name == "QueryPrefetchStatus" || name == "WaitPrefetchStatus" {
				require.NoError(t, err, name)
				require.NotNil(t, p, name)
			} else {
				require.Error(t, err, name)
			}
		}
	}
}

// TestBytesForAReservationThatHasEnded: they are not written to where another engine's are by now.
func TestBytesForAReservationThatHasEnded(t *testing.T) {
	b := newBed(t, func(b *bed) {
		b.mo.Size = 16 << 10
		b.grace = 50 * time.Millisecond
	})
	address := b.tcp()
	w := b.engineAt(address, "worker", since057)
	w.register(1, 1)
	k := of(w.key("w", prompt(1, 64), 0, 64), 0)
	had, _ := w.prepareStore(k, 1)
	require.NotEmpty(t, had)
	require.NoError(t, w.conn.Close())
	b.eventually("the reservation has ended", func() bool { _, r := b.held(); return r == 0 })
	other := b.engine("other", since057)
	other.register(2, 1)
	salted := func(to int) *mp.IpcCacheServerKey { // whose bytes are others
		k := other.key("r", prompt(1, 64), 0, to)
		k.CacheSalt = "salt"
		return k
	}
	n := other.store(of(salted(64), 0), 2)
	require.Positive(t, n)
	require.EqualValues(t, n, other.lookUp(salted(64)))
	w = b.engineAt(address, "worker", since057)
	w.commitStore(k, 1, w.body(k))
	require.True(t, other.load(of(salted(n*chunk), 0), 2))
	other.end("r")
	b.nothingHeld()
}

// TestClientThatOnlyPings has its session again after a restart, and what it was told is pinned.
func TestClientThatOnlyPings(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(1, 32), 0, 32), 0), 1))
	require.EqualValues(t, 2, e.lookUp(e.key("r", prompt(1, 32), 0, 32)))
	b.restart()
	require.Equal(t, 1, b.registry.Counts().Waiting)
	e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{})
	require.Zero(t, b.registry.Counts().Waiting)
	e.end("r")
	b.nothingHeld()
}

// TestWorkerOfADeadEngineIsNoDoubt: another engine of the model, with another layout, finds what it has
// stored.
func TestWorkerOfADeadEngineIsNoDoubt(t *testing.T) {
	b := newBed(t, nil)
	address := b.tcp()
	first := b.engineAt(address, "first", since057)
	first.register(1, 1)
	require.NoError(t, first.conn.Close())
	b.eventually("the first one is gone", func() bool { return b.registry.Counts().Connected == 0 })
	e := b.engineAt(address, "second", since057)
	e.must("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: 2, ModelName: "org/model", WorldSize: 1, BlockSize: 16, NumLayers: 2, HiddenDimSize: 8, DtypeStr: "float16",
	}, &mp.RegisterKvCacheEngineDrivenContextResponse{})
	k := of(e.key("w", prompt(1, 32), 0, 32), 0)
	offsets, _ := e.prepareStore(k, 2)
	require.Len(t, offsets, 2)
	require.True(t, e.commitStore(k, 2, nil))
	require.EqualValues(t, 2, e.lookUp(e.key("r", prompt(1, 32), 0, 32)))
	e.end("r")
	b.nothingHeld()
}

// TestBytesThatNoMessageHolds are not loaded: gRPC would answer an error.
func TestBytesThatNoMessageHolds(t *testing.T) {
	b := newBed(t, func(b *bed) { b.o.Bodies = true })
	e := b.engine("engine", since057)
	e.register(1, 1)
	k := of(e.key("w", prompt(1, 64), 0, 64), 0)
	require.True(t, e.commitStore(k, 1, e.body(k)))
	for _, c := range []struct {
		most int
		want bool
	}{{4 * chunkBytes, false}, {5 * chunkBytes, true}} {
		b.server.maxMessage = c.most
		p := &mp.PrepareRetrieveResponse{}
		e.must("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: k, InstanceId: 1}, p)
		require.Equal(t, c.want, p.Success)
		e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: k, InstanceId: 1}, &mp.CommitRetrieveResponse{})
		b.nothingHeld()
	}
}

// TestWorkerThatIsNotKnownToMap: nothing is found for it before it has written to the segment. A second
// registration changes nothing.
func TestWorkerThatIsNotKnownToMap(t *testing.T) {
	b := newBed(t, nil)
	first := b.engine("first", since057)
	first.register(1, 1)
	require.Equal(t, 2, first.store(of(first.key("w", prompt(1, 32), 0, 32), 0), 1))
	e := b.engineAt(b.tcp(), "second", since057)
	e.register(2, 1)
	b.server.workers.unregister(1)
	find := func(want int) {
		t.Helper()
		require.EqualValues(t, want, e.lookUp(e.key("r", prompt(1, 32), 0, 32)))
		p := &mp.PrepareRetrieveResponse{}
		e.must("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: of(e.key("r", prompt(1, 32), 0, 32), 0), InstanceId: 2}, p)
		require.Equal(t, want > 0, p.Success)
		e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: of(e.key("r", prompt(1, 32), 0, 32), 0), InstanceId: 2},
			&mp.CommitRetrieveResponse{})
		e.end("r")
		b.nothingHeld()
	}
	find(0)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(9, 32), 0, 32), 0), 2))
	find(2)
	e.register(2, 1)
	find(2)
}

// TestInlineWorkerThatRegistersAgain: it does so after each failed heartbeat, and can't map the segment then
// either.
func TestInlineWorkerThatRegistersAgain(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	k := of(e.key("w", prompt(1, 32), 0, 32), 0)
	require.True(t, e.commitStore(k, 1, e.body(k)))
	e.register(1, 1)
	p := &mp.PrepareRetrieveResponse{}
	e.must("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: k, InstanceId: 1}, p)
	require.True(t, p.Success)
	require.Equal(t, e.body(k), p.Data)
	e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: k, InstanceId: 1}, &mp.CommitRetrieveResponse{})
	b.nothingHeld()
}

// TestLoadBeyondTheTokens: fewer slots than the engine wants end it.
func TestLoadBeyondTheTokens(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(1, 32), 0, 32), 0), 1))
	require.False(t, e.load(of(e.key("r", prompt(1, 32), 0, 48), 0), 1))
	b.nothingHeld()
}

// TestRefusedRegistrationIsNotKept: an engine that did not start has no workers.
func TestRefusedRegistrationIsNotKept(t *testing.T) {
	b := newBed(t, func(b *bed) { b.o.Bodies = true })
	e := b.engine("engine", since056)
	require.Error(t, e.call("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: 1, ModelName: "org/model", WorldSize: 1, BlockSize: 16, NumLayers: 2, HiddenDimSize: 8, DtypeStr: "float32",
	}, &mp.RegisterKvCacheEngineDrivenContextResponse{}))
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	require.Empty(t, b.server.state.Instances)
}

// TestClientThatIsBackBeforeItsEndIsNoticed: the end of the one before removes only that.
func TestClientThatIsBackBeforeItsEndIsNoticed(t *testing.T) {
	b := newBed(t, nil)
	b.engine("engine", since057)
	before, now := &client{id: "a"}, &client{id: "a"}
	b.server.served["a"] = now
	b.server.removeUnused(before)
	b.server.removeUnused(before)
	require.Same(t, now, b.server.served["a"])
}

// TestDeadWorkersAreForgotten when another one registers, and no others.
func TestDeadWorkersAreForgotten(t *testing.T) {
	b := newBed(t, nil)
	e, unknown := b.engine("engine", since057), b.engineAt(b.tcp(), "unknown", since057)
	e.register(1, 1)
	e.register(2, 1)
	unknown.register(3, 1)
	b.server.mu.Lock()
	b.server.state.Instances["1"].Process.Start++ // its number is another process's now
	b.server.mu.Unlock()
	e.register(4, 1)
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	require.Equal(t, []string{"2", "3", "4"}, slices.Sorted(maps.Keys(b.server.state.Instances)))
}

// TestRoomForOneWorkerMore: of as many as there may be, one goes that has no connection, and never one that
// has.
func TestRoomForOneWorkerMore(t *testing.T) {
	b := newBed(t, func(b *bed) { b.o.State = "" })
	e := b.engine("engine", since057)
	e.register(1, 1)
	s := b.server
	s.mu.Lock()
	for i := range maxInstances - 1 {
		s.state.Instances[instanceID(int64(1000+i))] = &instance{}
	}
	s.mu.Unlock()
	e.register(2, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.state.Instances, maxInstances)
	require.Contains(t, s.state.Instances, "1")
	require.Contains(t, s.state.Instances, "2")
}

// TestLoadBesideItsLookUp: what a look-up has found is loaded, however little more the process may hold.
func TestLoadBesideItsLookUp(t *testing.T) {
	b := newBed(t, func(b *bed) { b.most = 4 * chunkBytes })
	e := b.engine("engine", since057)
	e.register(1, 1)
	require.Equal(t, 3, e.store(of(e.key("w", prompt(1, 48), 0, 48), 0), 1))
	k := e.key("r", prompt(1, 48), 0, 48)
	require.EqualValues(t, 3, e.lookUp(k))
	require.True(t, e.load(of(k, 0), 1))
	b.nothingHeld()
	e.end("r")

	// What no look-up has found is refused beyond it.
	require.Equal(t, 2, e.store(of(e.key("w", prompt(1, 80), 48, 80), 0), 1))
	require.False(t, e.load(of(e.key("s", prompt(1, 80), 0, 80), 0), 1))
	b.nothingHeld()
}

// TestIdleEngineLosesNothing: after ten minutes without a call but its pings it is registered, finds what it has
// stored, and ends what it has begun to store.
func TestIdleEngineLosesNothing(t *testing.T) {
	for r, service := range map[release]string{since056: "ControllerService", since057: "ManagementService"} {
		t.Run(r.String(), func(t *testing.T) {
			var idle atomic.Int64
			b := newBed(t, func(b *bed) {
				b.now = func() time.Time { return time.Now().Add(time.Duration(idle.Load())) }
			})
			scheduler, worker := b.engine("scheduler", r), b.engine("worker", r)
			worker.register(1, 1)
			require.Equal(t, 3, worker.store(of(worker.key("w", prompt(1, 48), 0, 48), 0), 1))
			slow := of(worker.key("w", prompt(1, 80), 48, 80), 0)
			offsets, _ := worker.prepareStore(slow, 1)
			require.Len(t, offsets, 2)
			idle.Store(int64(10 * time.Minute))
			b.registry.Look()
			b.server.mu.Lock()
			for _, c := range b.server.served {
				c.mu.Lock()
				c.swept = time.Time{}
				c.mu.Unlock()
			}
			b.server.mu.Unlock()
			for _, e := range []*engine{scheduler, worker} {
				p, id := &mp.PingResponse{}, int64(1)
				e.must(service+"/Ping", &mp.PingRequest{InstanceId: &id}, p)
				require.True(t, p.Ok)
			}
			for i, at := range offsets {
				copy(worker.segment()[at:at+chunkBytes], content(slow, 3+int64(i)))
			}
			require.True(t, worker.commitStore(slow, 1, nil))
			k := scheduler.key("r", prompt(1, 80), 0, 80)
			require.EqualValues(t, 5, scheduler.lookUp(k))
			require.True(t, worker.load(of(k, 0), 1))
			scheduler.end("r")
			b.nothingHeld()
		})
	}
}

// TestSchedulerBeforeItsWorkers: an engine whose worker has to register again, as with a new segment, finds nothing
// that only the worker of another engine could load.
func TestSchedulerBeforeItsWorkers(t *testing.T) {
	b := newBed(t, nil)
	other := b.engine("other", since057)
	other.register(1, 1)
	require.Zero(t, other.lookUp(other.key("r", prompt(1, 32), 0, 32)))
	require.Equal(t, 2, other.store(of(other.key("r", prompt(1, 32), 0, 32), 0), 1))
	require.EqualValues(t, 2, other.lookUp(other.key("r", prompt(1, 32), 0, 32)))
	other.end("r")
	e := b.engineAt(b.tcp(), "engine", since057) // of another process, as far as is known
	require.Zero(t, e.lookUp(e.key("r", prompt(1, 32), 0, 32)))
	e.register(2, 1)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(9, 32), 0, 32), 0), 2)) // it maps the segment
	require.EqualValues(t, 2, e.lookUp(e.key("r", prompt(1, 32), 0, 32)))
	require.True(t, e.load(of(e.key("r", prompt(1, 32), 0, 32), 0), 2))
	e.end("r")
	b.nothingHeld()
}

// TestOneOfTwoWorkersHasRegistered: nothing is found, since the other one could not load.
func TestOneOfTwoWorkersHasRegistered(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	for i := range int64(2) {
		e.register(1+i, 2)
	}
	key := func(request string) *mp.IpcCacheServerKey {
		k := e.key(request, prompt(1, 32), 0, 32)
		k.WorldSize = 2
		return k
	}
	for i := range int64(2) {
		require.Equal(t, 2, e.store(of(key("w"), i), 1+i))
	}
	require.EqualValues(t, 2, e.lookUp(key("r")))
	e.end("r")
	b.server.workers.unregister(2)
	require.Zero(t, e.lookUp(key("r")))
	e.register(2, 2)
	require.EqualValues(t, 2, e.lookUp(key("r")))
	e.end("r")
	b.nothingHeld()
}

// TestLookUpOfWhatIsBeingStored leaves no lease, even if nobody ends it: an engine that takes the server for unhealthy
// does not.
func TestLookUpOfWhatIsBeingStored(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	e.register(1, 1)
	k := of(e.key("w", prompt(1, 64), 32, 64), 0)
	require.Equal(t, 2, e.store(of(e.key("w", prompt(1, 64), 0, 32), 0), 1))
	offsets, _ := e.prepareStore(k, 1)
	require.Len(t, offsets, 2)
	require.EqualValues(t, 2, e.lookUp(e.key("r", prompt(1, 64), 0, 64)))
	e.must("LookupService/FreeLookupLocks", &mp.FreeLookupLocksRequest{Key: e.key("r", prompt(1, 64), 0, 64), TpSize: 1}, &mp.FreeLookupLocksResponse{})
	require.Equal(t, 1, b.registry.Counts().Leases, "of what is being stored")
	require.True(t, e.commitStore(k, 1, nil))
	require.Zero(t, b.registry.Counts().Leases)
}
