package lmcache

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// withBodies gives large messages a budget of so many bytes.
func withBodies(bytes int64) func(*bed) {
	return func(b *bed) { b.o.Rooms = &fair.Rooms{Turns: fair.NewTurns(2), Bodies: fair.NewBudget(bytes)} }
}

// TestLargeMessagesShareABudget: those of many engines are not in memory at the same time, and all are taken.
// Each of them could have a gibibyte.
func TestLargeMessagesShareABudget(t *testing.T) {
	b := newBed(t, withBodies(1<<20))
	address := b.tcp()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // room that is not given back never comes
	defer cancel()
	var calls sync.WaitGroup
	for i := range 6 {
		e := b.engineAt(address, string(rune('a'+i)), since057)
		calls.Go(func() {
			for range 5 {
				q, p := &mp.CommitStoreRequest{Data: make([]byte, 300<<10)}, &mp.CommitStoreResponse{}
				if !assert.NoError(t, e.conn.(*grpc.ClientConn).Invoke(metadata.AppendToOutgoingContext(ctx, idHeader, e.id), "/lmcache.mp.EngineDrivenService/CommitStore", q, p)) {
					return
				}
			}
		})
	}
	calls.Wait()
	b.eventually("everything is given back", func() bool { n, _ := b.o.Rooms.Bodies.Used(); return n == 0 })
	_, peak := b.o.Rooms.Bodies.Used()
	require.Greater(t, peak, int64(600<<10))
	require.LessOrEqual(t, peak, int64(1<<20))
}

// countedConn counts what a client has sent.
type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// TestMessageWithoutRoomStaysWithItsClient, and other calls of the connection go on.
func TestMessageWithoutRoomStaysWithItsClient(t *testing.T) {
	b := newBed(t, withBodies(8<<20))
	var other fair.Share
	require.True(t, b.o.Rooms.Bodies.Acquire(nil, &other, 8<<20))
	var sent atomic.Int64
	conn, err := grpc.NewClient("passthrough:///"+b.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", b.socket)
			return countedConn{c, &sent}, err
		}))
	require.NoError(t, err)
	defer conn.Close()
	e := &engine{bed: b, conn: conn, id: "engine 012345678", release: since057}
	done := make(chan error, 1)
	go func() {
		done <- e.call("EngineDrivenService/CommitStore", &mp.CommitStoreRequest{Data: make([]byte, 3<<20)}, &mp.CommitStoreResponse{})
	}()
	b.eventually("it waits", func() bool { return b.o.Rooms.Bodies.Waiting() == 1 })
	before := sent.Load()
	for range 100 {
		e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{})
	}
	require.Less(t, sent.Load(), int64(2*smallMessage))
	require.Greater(t, sent.Load(), before)
	select {
	case err := <-done:
		t.Fatal("it did not wait", err)
	default:
	}
	b.o.Rooms.Bodies.Release(&other, 8<<20)
	require.NoError(t, <-done)
	require.Greater(t, sent.Load(), int64(3<<20))
	b.eventually("everything is given back", func() bool { n, _ := b.o.Rooms.Bodies.Used(); return n == 0 })
}

// TestCallThatEndsWhileItWaits takes nothing.
func TestCallThatEndsWhileItWaits(t *testing.T) {
	b := newBed(t, withBodies(8<<20))
	var other fair.Share
	require.True(t, b.o.Rooms.Bodies.Acquire(nil, &other, 8<<20))
	e := b.engine("engine", since057)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), idHeader, e.id))
	done := make(chan error, 1)
	go func() {
		done <- e.conn.(*grpc.ClientConn).Invoke(ctx, "/lmcache.mp.EngineDrivenService/CommitStore", &mp.CommitStoreRequest{Data: make([]byte, 1<<20)}, &mp.CommitStoreResponse{})
	}()
	b.eventually("it waits", func() bool { return b.o.Rooms.Bodies.Waiting() == 1 })
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-done))
	b.eventually("it waits no more", func() bool { return b.o.Rooms.Bodies.Waiting() == 0 })
	b.o.Rooms.Bodies.Release(&other, 8<<20)
	n, _ := b.o.Rooms.Bodies.Used()
	require.Zero(t, n)
}

// TestLoadWithinAMessageWaitsForRoom: its answer has the bytes of chunks.
func TestLoadWithinAMessageWaitsForRoom(t *testing.T) {
	b := newBed(t, withBodies(8<<20))
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 64*chunk)
	k := of(e.key("w", tokens, 0, 64*chunk), 0)
	require.True(t, e.commitStore(k, 1, e.body(k)))
	var other fair.Share
	b.eventually("there is room", func() bool { return b.o.Rooms.Bodies.TryAcquire(&other, 8<<20) })
	done := make(chan *mp.PrepareRetrieveResponse, 1)
	go func() {
		p := &mp.PrepareRetrieveResponse{}
		assert.NoError(t, e.call("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: k, InstanceId: 1}, p))
		done <- p
	}()
	b.eventually("it waits", func() bool { return b.o.Rooms.Bodies.Waiting() == 1 })
	b.o.Rooms.Bodies.Release(&other, 8<<20)
	p := <-done
	require.True(t, p.Success)
	require.Equal(t, e.body(k), p.Data)
	e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: k, InstanceId: 1}, &mp.CommitRetrieveResponse{})
	b.nothingHeld()
}

// TestCallsTakeTurns of their process, beside those of other protocols. One that waits for a level has none.
func TestCallsTakeTurns(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	var other fair.Queue
	turns := b.o.Rooms.Turns
	for range 2 {
		turns.Acquire(&other, make(chan struct{}, 1))
	}
	e.must("LookupService/WaitPrefetchStatus", &mp.WaitPrefetchStatusRequest{RequestId: "r"}, &mp.WaitPrefetchStatusResponse{})
	done := make(chan error, 1)
	go func() { done <- e.call("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{}) }()
	b.eventually("it waits", func() bool { return turns.Waiting() == 1 })
	turns.Release(&other, 1)
	turns.Release(&other, 1)
	require.NoError(t, <-done)
}

// TestMessagesThatAreRefused before they are read.
func TestMessagesThatAreRefused(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	_, err := e.raw("/lmcache.mp.LookupService/Lookup", []byte{0xff})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "it is no message")
	_, err = e.raw("/lmcache.mp.ManagementService/Ping", []byte{0x78, 1})
	require.NoError(t, err, "a field of a later release")
	b.server.maxMessage = 1000
	err = e.call("EngineDrivenService/CommitStore", &mp.CommitStoreRequest{Data: make([]byte, 1000)}, &mp.CommitStoreResponse{})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// TestLargeMessagesOfZMQShareTheBudget, and a connection is not read while its message waits.
func TestLargeMessagesOfZMQShareTheBudget(t *testing.T) {
	b := overZMQBed(t, withBodies(8<<20))
	e := b.engine("engine", since057)
	e.register(1, 1)
	tokens := prompt(1, 64*chunk)
	k := of(e.key("w", tokens, 0, 64*chunk), 0)
	var other fair.Share
	require.True(t, b.o.Rooms.Bodies.Acquire(nil, &other, 8<<20))
	done := make(chan bool, 1)
	go func() { done <- e.commitStore(k, 1, e.body(k)) }()
	b.eventually("it waits", func() bool { return b.o.Rooms.Bodies.Waiting() == 1 })
	b.o.Rooms.Bodies.Release(&other, 8<<20)
	require.True(t, <-done)
	b.eventually("everything is given back", func() bool { n, _ := b.o.Rooms.Bodies.Used(); return n == 0 })
	_, peak := b.o.Rooms.Bodies.Used()
	require.EqualValues(t, 8<<20, peak)

	b.eventually("there is room", func() bool { return b.o.Rooms.Bodies.TryAcquire(&other, 8<<20) })
	load := make(chan *mp.PrepareRetrieveResponse, 1)
	go func() {
		p := &mp.PrepareRetrieveResponse{}
		assert.NoError(t, e.call("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: k, InstanceId: 1}, p))
		load <- p
	}()
	b.eventually("its answer waits", func() bool { return b.o.Rooms.Bodies.Waiting() == 1 })
	b.o.Rooms.Bodies.Release(&other, 8<<20)
	p := <-load
	require.Equal(t, e.body(k), p.Data)
	e.must("EngineDrivenService/CommitRetrieve", &mp.CommitRetrieveRequest{Key: k, InstanceId: 1}, &mp.CommitRetrieveResponse{})
	b.nothingHeld()
	b.eventually("all of it is given back", func() bool { n, _ := b.o.Rooms.Bodies.Used(); return n == 0 })
}

// TestPartsOfALargeMessage have room together, and a call that has some does not wait for the rest with it.
func TestPartsOfALargeMessage(t *testing.T) {
	budget := fair.NewBudget(1 << 20)
	r := &room{budget: budget, share: &fair.Share{}, close: func() error { return nil }}
	require.NoError(t, r.more(100<<10))
	require.NoError(t, r.more(300<<10), "with the first part it would have more than half")
	n, _ := budget.Used()
	require.EqualValues(t, 800<<10, n)
	r.release()
	n, _ = budget.Used()
	require.Zero(t, n)
}
