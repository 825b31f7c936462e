package lmcache

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/kv"
)

// TestChainsThatShrink: a chain keeps the memory of the most tokens that it has had, and a small one takes
// some, too.
func TestChainsThatShrink(t *testing.T) {
	c, err := newChains(16)
	require.NoError(t, err)
	for i := range 5 {
		_, err := c.names(fmt.Sprint("large", i), make([]byte, 4*(1<<20)), 0, 1)
		require.NoError(t, err)
		_, err = c.names(fmt.Sprint("large", i), make([]byte, 4*16), 0, 1)
		require.NoError(t, err)
	}
	require.Less(t, len(c.all), 4)
	for i := range 100_000 {
		_, err := c.names(fmt.Sprint(i), nil, 0, 0)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(c.all), maxChainTokens/chainTokens)
}

// TestClientsBeyondTheLimit leave nothing behind.
func TestClientsBeyondTheLimit(t *testing.T) {
	b := newBed(t, nil)
	e := b.engine("engine", since057)
	for i := range 200 {
		e.id = fmt.Sprintf("%016d", i)
		e.must("ManagementService/Ping", &mp.PingRequest{}, &mp.PingResponse{})
	}
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	require.LessOrEqual(t, len(b.server.served), b.registry.Limits().Sessions)
}

// TestReleasesBeyondTheLimit are not remembered while the clients that are have connections.
func TestReleasesBeyondTheLimit(t *testing.T) {
	b := newBed(t, func(b *bed) { b.o.State = "" })
	s := b.server
	s.mu.Lock()
	for i := range maxClients { // all of them are connected
		id := fmt.Sprint(i)
		s.state.Clients[id], s.served[id] = since057.String(), &client{id: id}
	}
	s.mu.Unlock()
	s.serve("more", since057)
	s.mu.Lock()
	require.Len(t, s.state.Clients, maxClients)
	delete(s.served, "7")
	s.mu.Unlock()
	s.serve("more", since057)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.state.Clients, maxClients)
	require.Contains(t, s.state.Clients, "more")
	require.NotContains(t, s.state.Clients, "7")
	clear(s.served)
}

func connsOf(c carrier) *conns {
	if z, is := c.(*ZMQ); is {
		return z.conns
	}
	return c.(*GRPC).conns
}

// TestSilentConnection does not hold up the end.
func TestSilentConnection(t *testing.T) {
	b := newBed(t, nil)
	b.engine("engine", since057)
	conn, err := net.Dial("unix", b.socket)
	require.NoError(t, err)
	defer conn.Close()
	b.eventually("it is accepted", func() bool {
		conns := connsOf(b.carrier)
		conns.mu.Lock()
		defer conns.mu.Unlock()
		return len(conns.open) == 2
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	b.carrier.Shutdown(ctx)
	require.Less(t, time.Since(begin), time.Minute, "gRPC waits for two")
}

// TestServeAfterShutdown is no failure: a daemon may be ended while it starts.
func TestServeAfterShutdown(t *testing.T) {
	b := newBed(t, nil)
	b.engine("engine", since057)
	b.carrier.Shutdown(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, b.carrier.Serve(l))
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestAnotherChunkSize: it counts from the next start on, and engines register for it.
func TestAnotherChunkSize(t *testing.T) {
	b := newBed(t, nil)
	b.engine("before", since057).register(1, 1)
	b.o.ChunkSize = 64
	b.restart()
	p := &mp.NegotiateChunkSizeResponse{}
	b.engine("after", since057).must("ManagementService/NegotiateChunkSize", &mp.NegotiateChunkSizeRequest{RequiredChunkAlignment: 64}, p)
	require.EqualValues(t, 64, p.ChunkSize)
	require.Empty(t, b.server.state.Instances)
	b.restart()
	require.Equal(t, 64, b.server.state.Chunk)
	b.engine("again", since057)
}

// TestAnotherEngineWord: workers that are registered under another one register again.
func TestAnotherEngineWord(t *testing.T) {
	b := newBed(t, nil)
	b.engine("before", since057).register(1, 1)
	b.o.Engine = "vllm 0.33"
	b.restart()
	e := b.engine("after", since057)
	require.Empty(t, b.server.state.Instances)
	e.register(1, 1)
	require.Equal(t, "vllm 0.33", b.server.state.Instances["1"].Layout.Engine)
}

// TestLargestStateIsRead: what is written is never more than what is read.
func TestLargestStateIsRead(t *testing.T) {
	l := kv.Layout{Model: strings.Repeat("<", maxModel), Engine: strings.Repeat("<", 255), World: maxWorld, ChunkTokens: 1 << 16}
	for range maxGroups {
		l.Groups = append(l.Groups, kv.Group{
			Layers: 1 << 40, Slots: 1 << 40, Hidden: 1 << 40, DType: "float8_e4m3fnuz", Planes: 2, BlockTokens: 1 << 40, Window: 1 << 40, Recurrent: true,
		})
	}
	st := state{Clients: map[string]string{}, Instances: map[string]*instance{}}
	for i := range maxInstances {
		st.Instances[fmt.Sprintf("%019d", i)] = &instance{Layout: l, Client: strings.Repeat("f", 32)}
	}
	for i := range maxClients {
		st.Clients[fmt.Sprintf("%032d", i)] = since057.String()
	}
	b, err := st.marshal()
	require.NoError(t, err)
	path := t.TempDir() + "/pool.lmcache"
	require.NoError(t, writeState(path, b))
	read, err := loadState(path, 0)
	require.NoError(t, err)
	require.Len(t, read.Instances, maxInstances)
}

// TestKilledWhileWriting: the next start removes what is left, and another write does not mind it.
func TestKilledWhileWriting(t *testing.T) {
	path := t.TempDir() + "/pool.lmcache"
	require.NoError(t, writeState(path, []byte(`{"generation":7,"chunk_size":16}`)))
	left := path + shmfile.EnginesNew
	require.NoError(t, os.WriteFile(left, []byte(`{"gener`), 0o600))
	require.NoError(t, writeState(path, []byte(`{"generation":7,"chunk_size":32}`)))
	require.NoFileExists(t, left)
	require.NoError(t, os.WriteFile(left, []byte(`{"gener`), 0o600))
	st, err := loadState(path, 7)
	require.NoError(t, err)
	require.Equal(t, 32, st.Chunk)
	require.NoFileExists(t, left)
}
