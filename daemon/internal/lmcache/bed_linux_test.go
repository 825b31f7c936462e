package lmcache

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a server over a segment, and what is below it.
type bed struct {
	testing.TB
	dir      string
	mo       memory.Options
	o        Options
	grace    time.Duration
	most     int64 // bytes that a process may pin and reserve; 0 is 1 MiB
	now      func() time.Time
	lower    []tier.Lower
	level    *memory.Level
	store    *tier.Store
	registry *registry.Registry
	server   *Server
	carrier  carrier
	socket   string
	served   chan error
}

// carrier is a GRPC or a ZMQ.
type carrier interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context)
}

// overZMQ is set while tests run over ZMQ.
var overZMQ bool

// newBed starts a server with a segment of 1 MiB and chunks of 16 tokens. change may change the options.
func newBed(t testing.TB, change func(*bed)) *bed {
	t.Helper()
	b := &bed{TB: t, dir: t.TempDir()}
	b.mo = memory.Options{Name: "pool", Dir: b.dir, Size: 1 << 20, MaxObjects: 1024, MaxLeases: 64, MaxPins: 4096}
	b.o = Options{Logger: slog.New(slog.NewTextHandler(failure{t}, &slog.HandlerOptions{Level: slog.LevelError})), ChunkSize: 16, Dir: b.dir, State: filepath.Join(b.dir, "pool.lmcache")}
	if change != nil {
		change(b)
	}
	b.start()
	t.Cleanup(b.stop)
	return b
}

// failure is a log in which nothing may stand: a panic is one.
type failure struct{ testing.TB }

func (f failure) Write(p []byte) (int, error) {
	f.Errorf("%s", p)
	return len(p), nil
}

// withDisk gives the store a disk.
func withDisk(b *bed) {
	d, err := disk.Open(filepath.Join(b.dir, "disk"), disk.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, d.Close()) })
	b.lower = []tier.Lower{{Level: d}}
}

func (b *bed) start() {
	b.Helper()
	var err error
	b.mo.Now = b.now
	b.level, err = memory.Open(b.mo)
	require.NoError(b, err)
	b.store, err = tier.Open(context.Background(), tier.Options{Memory: b.level, Lower: b.lower})
	require.NoError(b, err)
	b.registry, err = registry.Open(registry.Options{
		Store: b.store, Memory: b.level, Grace: cmp.Or(b.grace, time.Minute), Now: b.now,
		Limits: registry.Limits{Connections: 64, Sessions: 64, Leases: 64, Held: cmp.Or(b.most, 1<<20), Longest: time.Hour, Ordinary: time.Minute},
	})
	require.NoError(b, err)
	if b.o.Rooms == nil {
		b.o.Rooms = &fair.Rooms{Turns: fair.NewTurns(2), Bodies: fair.NewBudget(RoomOfBodies)}
	}
	b.o.Store, b.o.Memory = b.store, b.level
	b.o.Registry, b.o.Segment = b.registry, b.level.Segment()
	b.server, err = NewServer(b.o)
	require.NoError(b, err)
	if overZMQ {
		b.carrier = NewZMQ(b.server)
	} else {
		b.carrier = NewGRPC(b.server) // which has goroutines until Shutdown
	}
	if b.socket == "" {
		dir, err := os.MkdirTemp("", "rc") // a socket's path is short
		require.NoError(b, err)
		b.Cleanup(func() { assert.NoError(b, os.RemoveAll(dir)) })
		b.socket = filepath.Join(dir, "s")
	}
	_ = os.Remove(b.socket) // of the server before
	l, err := net.Listen("unix", b.socket)
	require.NoError(b, err)
	g, served := b.carrier, make(chan error, 1)
	b.served = served
	go func() { served <- g.Serve(l) }()
}

// stop ends everything, and verifies what must hold then.
func (b *bed) stop() {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b.carrier.Shutdown(ctx)
	assert.NoError(b, <-b.served)
	assert.NoError(b, b.registry.Check())
	b.registry.Close()
	assert.NoError(b, b.store.Close())
	assert.NoError(b, b.level.CheckStructure())
	assert.NoError(b, b.level.Close())
}

func (b *bed) restart() {
	b.Helper()
	b.stop()
	b.start()
}

// held returns how many objects leases pin and reserve.
func (b *bed) held() (pinned, reserved int) {
	for _, l := range b.store.Leases() {
		pinned, reserved = pinned+len(l.Pinned), reserved+len(l.Reserved)
	}
	return pinned, reserved
}

// eventually waits for what another goroutine does.
func (b *bed) eventually(what string, is func() bool) {
	b.Helper()
	for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 2*time.Minute {
			b.Fatalf("%s: it did not come to that", what)
		}
	}
}

// engine is a client of LMCache, of a release.
type engine struct {
	*bed
	conn    io.Closer // a *grpc.ClientConn or a *zmqConn
	id      string
	release release
}

// engine connects a client, which has called a service that tells its release.
func (b *bed) engine(id string, r release) *engine {
	b.Helper()
	return b.engineAt("unix:"+b.socket, id, r)
}

// tcp listens for clients whose process is not known, and returns the address.
func (b *bed) tcp() string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	g := b.carrier
	go func() { assert.NoError(b, g.Serve(l)) }()
	return "passthrough:///" + l.Addr().String()
}

func (b *bed) engineAt(address, id string, r release) *engine {
	b.Helper()
	e := &engine{bed: b, id: fmt.Sprintf("%-16s", id), release: r}
	if overZMQ {
		e.conn = &zmqConn{bed: b, address: address}
	} else {
		var err error
		e.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(b, err)
	}
	b.Cleanup(func() { _ = e.conn.Close() })
	if r == since056 {
		e.must("ControllerService/GetChunkSize", &mp.GetChunkSizeRequest{}, &mp.GetChunkSizeResponse{})
	} else {
		e.must("ManagementService/NegotiateChunkSize", &mp.NegotiateChunkSizeRequest{RequiredChunkAlignment: 16}, &mp.NegotiateChunkSizeResponse{})
	}
	return e
}

func (e *engine) call(method string, q, p proto.Message) error {
	ctx := metadata.AppendToOutgoingContext(context.Background(), idHeader, e.id)
	if conn, is := e.conn.(*zmqConn); is {
		return conn.call(method, q, p, e.release)
	}
	return e.conn.(*grpc.ClientConn).Invoke(ctx, "/lmcache.mp."+method, q, p, grpc.WaitForReady(true))
}

func (e *engine) must(method string, q, p proto.Message) {
	e.Helper()
	require.NoError(e, e.call(method, q, p), method)
}

// raw calls a method with bytes.
func (e *engine) raw(method string, q []byte) ([]byte, error) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), idHeader, e.id)
	if conn, is := e.conn.(*zmqConn); is {
		return conn.raw(method, q, e.release)
	}
	var p []byte
	err := e.conn.(*grpc.ClientConn).Invoke(ctx, method, q, &p, grpc.ForceCodec(rawCodec{}), grpc.WaitForReady(true))
	return p, err
}

type rawCodec struct{}

func (rawCodec) Name() string                  { return "raw" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// segment is the memory of the segment, as a worker has mapped it.
func (b *bed) segment() []byte {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.dir, b.mo.Name), os.O_RDWR, 0)
	require.NoError(b, err)
	defer f.Close()
	m, err := shmfile.Map(f, b.level.Segment().Size, true)
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, shmfile.Unmap(m)) })
	return m
}

// put stores an object of another protocol.
func (b *bed) put(space, name string) {
	b.Helper()
	p := []tier.Put{{Object: tier.Object{Key: tier.Key{Space: space, Name: name}, Size: 100}, Bytes: make([]byte, 100)}}
	b.store.Put(context.Background(), p)
	require.NoError(b, p[0].Err)
}

// body is what a worker sends that can't map the segment.
func (e *engine) body(k *mp.IpcCacheServerKey) []byte {
	group := []kv.Group{{Layers: 2, Hidden: 8, DType: "float32", Planes: 2, Slots: chunk}}
	var objects []object
	var placed []tier.Placed
	for n := k.Start / chunk; n < k.End/chunk; n++ {
		objects, placed = append(objects, object{chunk: int(n)}), append(placed, tier.Placed{Bytes: content(k, n)})
	}
	return appendBodies(nil, group, objects, placed, int(k.Start)/chunk)
}
