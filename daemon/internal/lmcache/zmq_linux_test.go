package lmcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// TestOverZMQ runs tests of the rules over ZMQ, but for those that know clients by their IDs of gRPC.
func TestOverZMQ(t *testing.T) {
	overZMQ = true
	defer func() { overZMQ = false }()
	for name, test := range map[string]func(*testing.T){
		"TestGoldenExchanges":                     TestGoldenExchanges,
		"TestGoldenExchangesOf056":                TestGoldenExchangesOf056,
		"TestBothReleasesShareObjects":            TestBothReleasesShareObjects,
		"TestSecondLookUp":                        TestSecondLookUp,
		"TestFreeOfAPartOfAHit":                   TestFreeOfAPartOfAHit,
		"TestFullMemoryStoresAPrefix":             TestFullMemoryStoresAPrefix,
		"TestReservedIsAsThere":                   TestReservedIsAsThere,
		"TestUnknownWorker":                       TestUnknownWorker,
		"TestAnotherSegmentForgetsWorkers":        TestAnotherSegmentForgetsWorkers,
		"TestPickleIsNeverRead":                   TestPickleIsNeverRead,
		"TestWorkerThatCanNotMap":                 TestWorkerThatCanNotMap,
		"TestTwoWorkers":                          TestTwoWorkers,
		"TestWorkersThatShareObjects":             TestWorkersThatShareObjects,
		"TestHitOnDisk":                           TestHitOnDisk,
		"TestClearLeavesOtherObjects":             TestClearLeavesOtherObjects,
		"TestMalformedKeysOfDataCallsAreNoErrors": TestMalformedKeysOfDataCallsAreNoErrors,
		"TestSilentConnection":                    TestSilentConnection,
		"TestAnotherChunkSize":                    TestAnotherChunkSize,
		"TestAnotherEngineWord":                   TestAnotherEngineWord,
		"TestWorkersWithOtherGroups":              TestWorkersWithOtherGroups,
		"TestDiskIsAskedForAllWorkers":            TestDiskIsAskedForAllWorkers,
		"TestLevelThatHangs":                      TestLevelThatHangs,
		"TestRefusedClientHasAStatus":             TestRefusedClientHasAStatus,
		"TestRefusedSecondLookUpFindsNothing":     TestRefusedSecondLookUpFindsNothing,
		"TestUseIsCounted":                        TestUseIsCounted,
		"TestBytesForAReservationThatHasEnded":    TestBytesForAReservationThatHasEnded,
		"TestWorkerOfADeadEngineIsNoDoubt":        TestWorkerOfADeadEngineIsNoDoubt,
		"TestBytesThatNoMessageHolds":             TestBytesThatNoMessageHolds,
		"TestWorkerThatIsNotKnownToMap":           TestWorkerThatIsNotKnownToMap,
		"TestInlineWorkerThatRegistersAgain":      TestInlineWorkerThatRegistersAgain,
		"TestLoadBeyondTheTokens":                 TestLoadBeyondTheTokens,
		"TestRefusedRegistrationIsNotKept":        TestRefusedRegistrationIsNotKept,
		"TestDeadWorkersAreForgotten":             TestDeadWorkersAreForgotten,
		"TestRoomForOneWorkerMore":                TestRoomForOneWorkerMore,
		"TestLoadBesideItsLookUp":                 TestLoadBesideItsLookUp,
		"TestIdleEngineLosesNothing":              TestIdleEngineLosesNothing,
		"TestLookUpOfWhatIsBeingStored":           TestLookUpOfWhatIsBeingStored,
		"TestEventsOfKV":                          TestEventsOfKV,
		"TestEventsContinue":                      TestEventsContinue,
		"TestEndOfTheServerEndsSubscriptions":     TestEndOfTheServerEndsSubscriptions,
	} {
		t.Run(name, test)
	}
}

// overZMQBed is a bed whose clients speak ZMQ.
func overZMQBed(t *testing.T, change func(*bed)) *bed {
	t.Helper()
	overZMQ = true
	t.Cleanup(func() { overZMQ = false })
	return newBed(t, change)
}

// zmqCall is a call as a release of LMCache encodes it for both carriers, see testdata/gen_zmq.py.
type zmqCall struct {
	Method, GRPC, Operation string
	Arguments               []string
}

func zmqCalls(t testing.TB, r release) (all []zmqCall) {
	t.Helper()
	file := "testdata/zmq_calls.0.5.6.json"
	if r == since057 {
		file = "testdata/zmq_calls.0.5.7rc2.json"
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &all))
	require.Greater(t, len(all), 25)
	return all
}

func (c zmqCall) frames(t testing.TB) (out [][]byte) {
	for _, a := range c.Arguments {
		out = append(out, unhex(t, a))
	}
	return out
}

// TestCallsAreThoseOfGRPC: what real clients say by ZMQ and by gRPC is the same request; and by ZMQ whatever has
// tokens or a layout tells the release.
func TestCallsAreThoseOfGRPC(t *testing.T) {
	for _, r := range []release{since056, since057} {
		for _, c := range zmqCalls(t, r) {
			name, err := readOperation(unhex(t, c.Operation))
			require.NoError(t, err)
			op := operations[name]
			require.Equal(t, c.Method[strings.IndexByte(c.Method, '.')+1:], op.method)
			q, told, err := readCall(op, c.frames(t))
			require.NoError(t, err, c)
			want := methods[op.method].request()
			require.NoError(t, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(unhex(t, c.GRPC), want))
			if k, ok := q.(*mp.LookupRequest); ok && string(k.Key.EncodedRequestConfigs) == "\x80" {
				k.Key.EncodedRequestConfigs = []byte{} // by gRPC an empty map is nothing
			}
			require.True(t, proto.Equal(want, q), "%v\nis\n%v", q, want)
			_, keyed := q.(interface{ GetKey() *mp.IpcCacheServerKey })
			switch {
			case keyed || op.method == "RegisterKvCacheEngineDrivenContext" || op.method == "NegotiateChunkSize":
				require.Equal(t, r, told, c)
			default:
				require.Equal(t, unknown, told, c)
			}
			for n := range c.Arguments { // those that may be missing have been so only since 0.5.7
				optional := r == since057 && n == 2 && (op.method == "FreeLookupLocks" || op.method == "PrepareStore")
				if _, _, err := readCall(op, c.frames(t)[:n]); op.method != "ReportBlockAllocation" && !optional {
					require.ErrorIs(t, err, errArguments, c)
				}
			}
		}
	}
}

// TestRecordedZMQ: a recorded engine of 0.5.7, frame by frame: it gets the answers of the stock server, but for the
// name of the segment and the places in it.
func TestRecordedZMQ(t *testing.T) {
	b := overZMQBed(t, func(b *bed) { b.mo.Size, b.o.ChunkSize = 8<<20, 64 })
	file, err := os.ReadFile("testdata/zmq_stock.0.5.7rc2.json")
	require.NoError(t, err)
	var all []struct {
		Client         string
		Request, Reply []string
	}
	require.NoError(t, json.Unmarshal(file, &all))
	clients := map[string]*zmqConn{}
	pings := 0
	for _, x := range all {
		c := clients[x.Client]
		if c == nil {
			c = &zmqConn{bed: b, address: "unix:" + b.socket}
			clients[x.Client] = c
			t.Cleanup(func() { _ = c.Close() })
		}
		var request [][]byte
		for _, f := range x.Request {
			request = append(request, unhex(t, f))
		}
		var reply []string
		for _, f := range c.exchange(request...) {
			reply = append(reply, hexOf(f))
		}
		name, err := readOperation(request[1])
		require.NoError(t, err)
		switch name {
		case "register_kv_cache_engine_driven_context", "prepare_store", "prepare_retrieve":
			require.Equal(t, x.Reply[:2], reply[:2])
			require.Equal(t, placeless(t, x.Reply[2]), placeless(t, reply[2]), x)
		default:
			require.Equal(t, x.Reply, reply, x)
		}
		if name == "ping" {
			pings++
		}
	}
	require.Positive(t, pings)
	require.Len(t, clients, 2)
	b.nothingHeld()
}

// placeless is the value of an answer without what differs from server to server.
func placeless(t testing.TB, frame string) any {
	t.Helper()
	v, rest, err := msgp.ReadIntfBytes(unhex(t, frame))
	require.NoError(t, err)
	require.Empty(t, rest)
	m := v.(map[string]any)
	for _, name := range []string{"shm_name", "pool_size"} {
		if m[name] != nil {
			m[name] = "any"
		}
	}
	if c, ok := m["context"].(map[string]any); ok {
		for _, s := range c["slots"].([]any) {
			s.(map[string]any)["offset"] = "any"
		}
	}
	return plain(t, v)
}

// TestUnknownOperations are answered at once: a stock server says nothing, and its client waits for its time limit.
func TestUnknownOperations(t *testing.T) {
	b := overZMQBed(t, nil)
	c := &zmqConn{bed: b, address: "unix:" + b.socket}
	t.Cleanup(func() { _ = c.Close() })
	number := msgp.AppendInt(nil, 7)
	for _, op := range [][]byte{
		msgp.AppendInt(nil, 6), msgp.AppendInt(nil, 11), msgp.AppendInt(nil, -1), msgp.AppendString(nil, "server_module_call"), msgp.AppendNil(nil), {0xc1},
		msgp.AppendUint64(nil, 1<<63), msgp.AppendString(nil, strings.Repeat("x", 1<<20)),
	} {
		answer := c.exchange(number, op, []byte{0xc1}, nil)
		require.Len(t, answer, 2)
		require.Equal(t, number, answer[0])
		text, rest, err := msgp.ReadStringBytes(answer[1])
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Contains(t, text, "lmcache: ")
		require.Less(t, len(text), 200)
	}
	err := c.call("LMCacheDrivenService/RegisterKvCache", &mp.RegisterKvCacheRequest{}, &mp.RegisterKvCacheResponse{}, since057)
	require.ErrorContains(t, err, "engine_driven")
}

// TestHostileZMQ: whatever a client sends, it is turned away or answered, and others are served.
func TestHostileZMQ(t *testing.T) {
	b := overZMQBed(t, nil)
	e := b.engine("engine", since057)
	hello := greeting("DEALER")
	long := func(flags byte, n uint64) string {
		return string(append([]byte{flags}, binary.BigEndian.AppendUint64(nil, n)...))
	}
	frames := func(all ...string) (out string) {
		for i, f := range all {
			flags := byte(2)
			if i < len(all)-1 {
				flags |= 1
			}
			out += long(flags, uint64(len(f))) + f
		}
		return out
	}
	for name, in := range map[string]string{
		"nothing":        "",
		"no greeting":    strings.Repeat("x", 64),
		"half a one":     hello[:70],
		"another socket": greeting("PUB"),
		"huge ready":     hello[:64] + long(6, 1<<62),
		"huge":           hello + long(2, 1<<62),
		"negative":       hello + long(2, 1<<64-1),
		"above 1 GiB":    hello + long(2, 1<<30),
		"announced":      hello + long(2, 1<<30-100) + "abc",
		"many frames":    hello + strings.Repeat("\x01\x00", 1000),
		"command":        hello + "\x04\x07\x04PING\x00\x00",
		"torn":           hello + "\x00\x09abc",
		"one frame":      hello + "\x00\x01\x07",
		"empty frames":   hello + frames("", ""),
		"no arguments":   hello + frames("\x01", "\x08"),
		"array of 2^32":  hello + frames("\x01", "\x08", "\xdd\xff\xff\xff\xff", "\x01"),
		"map of 2^32":    hello + frames("\x01", "\x08", "\xdf\xff\xff\xff\xff", "\x01"),
		"bytes of 2^32":  hello + frames("\x01", "\x11", "\x80", "\x01", "\xc6\xff\xff\xff\xff"),
		"tokens of 2^32": hello + frames("\x01", "\x08", "\x81\xa9token_ids\xdd\xff\xff\xff\xff", "\x01"),
		"deep":           hello + frames("\x01", "\x08", strings.Repeat("\x91", 1<<20), "\x01"),
		"ranges":         hello + frames("\x01", "\x0c", "\x81\xabtoken_bytes\xc4\x00", "\x01", "\xdc\xff\xff"+strings.Repeat("\x92\x00\x00", 0xffff)),
		"groups":         hello + frames("\x01", "\x0e", "\x81\xadgroup_layouts\xdc\xff\xff"+strings.Repeat("\x80", 0xffff)),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", b.socket)
			require.NoError(t, err)
			defer conn.Close()
			_, _ = io.WriteString(conn, in) // it may be cut off on the way
			require.NoError(t, conn.(*net.UnixConn).CloseWrite())
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(2*time.Minute)))
			_, err = io.Copy(io.Discard, conn)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still connected")
			p := &mp.PingResponse{}
			e.must("ManagementService/Ping", &mp.PingRequest{}, p)
			require.True(t, p.Ok)
		})
	}
}

// TestConnectionsBeyondTheLimit are closed, and others stay.
func TestConnectionsBeyondTheLimit(t *testing.T) {
	b := overZMQBed(t, nil)
	e := b.engine("engine", since057)
	l := b.registry.Limits()
	l.Connections = 1
	b.registry.SetLimits(l)
	_, err := (&zmqConn{bed: b, address: "unix:" + b.socket}).dial()
	require.Error(t, err)
	e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{})
}

// TestClientThatDoesNotRead holds up nobody else, and not the end.
func TestClientThatDoesNotRead(t *testing.T) {
	b := overZMQBed(t, nil)
	c := &zmqConn{bed: b, address: "unix:" + b.socket}
	t.Cleanup(func() { _ = c.Close() })
	number := bytes.Repeat([]byte{1}, 1<<20) // which comes back
	c.exchange(number, msgp.AppendInt(nil, 24))
	stuck := make(chan error, 1)
	deaf := c.c
	go func() {
		var err error
		for err == nil {
			err = deaf.Send([][]byte{number, msgp.AppendInt(nil, 24)})
		}
		stuck <- err
	}()
	e := b.engine("engine", since057)
	e.register(1, 1)
	for range 100 {
		e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{})
	}
	b.restart() // which ends it
	require.Error(t, <-stuck)
}

// TestCallsDuringAWait: a call that waits for a status holds up no other one of its client.
func TestCallsDuringAWait(t *testing.T) {
	overZMQ = true
	defer func() { overZMQ = false }()
	e, tokens := hangingBed(t)
	e.must("LookupService/Lookup", &mp.LookupRequest{Key: e.key("r", tokens, 0, 64)}, &mp.LookupResponse{})
	c := e.conn.(*zmqConn)
	wait := [][]byte{{0x07}, msgp.AppendInt(nil, 10), msgp.AppendString(nil, "r"), msgp.AppendFloat64(nil, 1e9)}
	for range maxCalls {
		require.NoError(t, c.c.Send(wait))
	}
	e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{}) // the first answer is its own
	e.end("r")
	for range maxCalls { // that it ends is an answer
		answer, err := c.c.Receive()
		require.NoError(t, err)
		require.Equal(t, [][]byte{{0x07}, {0x0a}, {0x00}}, answer)
	}
}

// TestZMQRestart: workers are registered as before, and what is stored is found and loaded. What a client had
// pinned ends with its grace, since it is another client now.
func TestZMQRestart(t *testing.T) {
	for _, r := range []release{since056, since057} {
		t.Run(r.String(), func(t *testing.T) {
			b := overZMQBed(t, func(b *bed) { b.grace = 50 * time.Millisecond })
			address := b.tcp()
			scheduler, worker := b.engineAt(address, "scheduler", r), b.engineAt(address, "worker", r)
			worker.register(1, 1)
			tokens := prompt(1, 64)
			require.Equal(t, 2, worker.store(of(worker.key("w", tokens, 0, 32), 0), 1))
			require.EqualValues(t, 2, scheduler.lookUp(scheduler.key("r1", tokens, 0, 64)))
			_, reserved := worker.prepareStore(of(worker.key("r1", tokens, 32, 64), 0), 1)
			require.Len(t, reserved, 2)
			b.restart()
			address = b.tcp()
			scheduler.conn.(*zmqConn).address, worker.conn.(*zmqConn).address = address, address
			require.True(t, worker.load(of(worker.key("r1", tokens, 0, 32), 0), 1))
			require.False(t, worker.commitStore(of(worker.key("r1", tokens, 32, 64), 0), 1, nil), "another's reservation")
			scheduler.end("r1")
			b.eventually("what was pinned has ended", func() bool { p, r := b.held(); return p+r == 0 })
			require.Equal(t, 2, worker.store(of(worker.key("r2", tokens, 32, 64), 0), 1))
			require.EqualValues(t, 4, scheduler.lookUp(scheduler.key("r2", tokens, 0, 64)))
			require.True(t, worker.load(of(worker.key("r2", tokens, 0, 64), 0), 1))
			scheduler.end("r2")
			b.nothingHeld()
		})
	}
}

// TestWorkerByAnotherConnection: it is the same worker, as its Ping says, of which it is known that it maps the
// segment, or that it sends bytes.
func TestWorkerByAnotherConnection(t *testing.T) {
	b := overZMQBed(t, nil)
	address := b.tcp()
	scheduler, mapped, inline := b.engineAt(address, "scheduler", since057), b.engineAt(address, "mapped", since057), b.engineAt(address, "inline", since057)
	mapped.register(1, 1)
	inline.register(2, 1)
	require.Equal(t, 2, mapped.store(of(mapped.key("w", prompt(1, 32), 0, 32), 0), 1))
	k := of(inline.key("v", prompt(9, 32), 0, 32), 0)
	require.True(t, inline.commitStore(k, 2, inline.body(k)))
	for _, again := range []bool{false, true} { // it registers again after a Ping that has failed
		for id, e := range map[int64]*engine{1: mapped, 2: inline} {
			require.NoError(t, e.conn.Close())
			p := &mp.PingResponse{}
			e.must("ManagementService/Ping", &mp.PingRequest{InstanceId: &id}, p)
			require.True(t, p.Ok)
			if again {
				e.register(id, 1)
			}
		}
		require.EqualValues(t, 2, scheduler.lookUp(scheduler.key("r", prompt(1, 32), 0, 32)))
		scheduler.end("r")
		require.EqualValues(t, 2, scheduler.lookUp(scheduler.key("s", prompt(9, 32), 0, 32)))
		scheduler.end("s")
		b.nothingHeld()
	}
}

// TestConnectedClientsDoNotHoldUpTheEnd, however much time there is.
func TestConnectedClientsDoNotHoldUpTheEnd(t *testing.T) {
	b := overZMQBed(t, nil)
	b.engine("engine", since057)
	ended := make(chan struct{})
	go func() {
		b.carrier.Shutdown(context.Background())
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("it waits for a client that says nothing")
	}
}

// FuzzCalls: whatever the frames of a call are, they are read or refused; and what is read is a call that a client can
// say.
func FuzzCalls(f *testing.F) {
	for _, r := range []release{since056, since057} {
		for _, c := range zmqCalls(f, r) {
			args := c.frames(f)
			for len(args) < 3 {
				args = append(args, nil)
			}
			f.Add(unhex(f, c.Operation), len(c.Arguments), args[0], args[1], args[2])
		}
	}
	f.Fuzz(func(t *testing.T, operation []byte, n int, a, b, c []byte) {
		name, err := readOperation(operation)
		if err != nil {
			require.ErrorIs(t, err, errArguments)
			return
		}
		op, ok := operations[name]
		if !ok {
			return
		}
		q, r, err := readCall(op, [][]byte{a, b, c}[:max(0, min(n, 3))])
		if err != nil {
			require.ErrorIs(t, err, errArguments)
			return
		}
		if op.method == "ReportBlockAllocation" || op.method == "RegisterKvCache" {
			return // whose arguments are not looked at
		}
		again, told, err := readCall(op, argumentsOf(t, q, r))
		require.NoError(t, err)
		require.Equal(t, r, told)
		require.True(t, proto.Equal(q, again), "%v\nis\n%v", q, again)
	})
}
