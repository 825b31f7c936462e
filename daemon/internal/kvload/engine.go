package kvload

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// Options describe an Engine.
type Options struct {
	Target string // of gRPC, such as unix:/PATH
	Dir    string // of shared memory
	Old    bool   // LMCache 0.5.6, not 0.5.7
	Inline bool   // its workers can't map the segment
	Model  string
	Block  int   // tokens
	Layers []int // of each group; the second one and those after it need their last chunk only
	Hidden int
	World  int
	// Timeout bounds each call.
	Timeout time.Duration
	// Observe, if not nil, is called after each call that was answered.
	Observe func(method string, took time.Duration)
}

// Engine is an engine with LMCache's connector. Its methods may be called from any goroutine.
type Engine struct {
	o         Options
	Chunk     int // tokens
	scheduler *client
	workers   []*worker
	mu        sync.RWMutex
	segment   []byte
}

// client is one of the connections of an engine, with the ID that LMCache sends with every call.
type client struct {
	conn *grpc.ClientConn
	id   string
}

type worker struct {
	client
	number, instance int64
}

// Connect starts an engine.
func Connect(ctx context.Context, o Options) (_ *Engine, err error) {
	e := &Engine{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.scheduler, err = e.dial(); err != nil {
		return nil, err
	}
	for n := range o.World {
		c, err := e.dial()
		if err != nil {
			return nil, err
		}
		w := &worker{client: *c, number: int64(n), instance: int64(binary.LittleEndian.Uint64([]byte(c.id)) >> 1)}
		e.workers = append(e.workers, w)
		if err := e.begin(ctx, w); err != nil {
			return nil, err
		}
	}
	if err := e.agree(ctx, e.scheduler); err != nil {
		return nil, err
	}
	if !o.Inline {
		return e, nil
	}
	// The process may well map the segment, for other engines of it: that a worker does not is known by its
	// first store.
	r := &Request{ID: "first", Prompt: NewPrompt(-1, 1, e.Chunk)}
	return e, again(ctx, func() error {
		_, err := e.Store(ctx, r, 0, 1, func() {})
		return err
	})
}

func (e *Engine) dial() (*client, error) {
	conn, err := grpc.NewClient(e.o.Target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		return nil, err
	}
	id := make([]byte, 16)
	_, _ = crand.Read(id) // it never fails
	return &client{conn, string(id)}, nil
}

// Close ends the connections, and says nothing to the server.
func (e *Engine) Close() error {
	var errs []error
	if e.scheduler != nil {
		errs = append(errs, e.scheduler.conn.Close())
	}
	for _, w := range e.workers {
		errs = append(errs, w.conn.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.segment != nil {
		errs = append(errs, shmfile.Unmap(e.segment))
		e.segment = nil
	}
	return errors.Join(errs...)
}

// call makes one call, and waits for a server that is away.
func (e *Engine) call(ctx context.Context, c *client, method string, q, p proto.Message) error {
	ctx, stop := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "lmcache-client-id-bin", c.id), e.o.Timeout)
	defer stop()
	begin := time.Now()
	if err := c.conn.Invoke(ctx, "/lmcache.mp."+method, q, p, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if e.o.Observe != nil {
		e.o.Observe(method, time.Since(begin))
	}
	return nil
}

// Lost reports whether a call has no answer since its connection has ended.
func Lost(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		s, ok := status.FromError(e)
		if !ok || s.Code() != codes.Unavailable {
			continue
		}
		for _, text := range []string{"error reading from server", "connection error", "transport is closing",
			"closing transport", "connection reset", "broken pipe"} {
			if strings.Contains(s.Message(), text) {
				return true
			}
		}
	}
	return false
}

// again makes a call until it has an answer.
func again(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || !Lost(err) || ctx.Err() != nil {
			return err
		}
	}
}

// agree asks for the chunk size.
func (e *Engine) agree(ctx context.Context, c *client) error {
	return again(ctx, func() error {
		if e.o.Old {
			p := &mp.GetChunkSizeResponse{}
			err := e.call(ctx, c, "ControllerService/GetChunkSize", &mp.GetChunkSizeRequest{}, p)
			e.Chunk = int(p.ChunkSize)
			return err
		}
		p := &mp.NegotiateChunkSizeResponse{}
		err := e.call(ctx, c, "ManagementService/NegotiateChunkSize",
			&mp.NegotiateChunkSizeRequest{RequiredChunkAlignment: int64(e.o.Block)}, p)
		e.Chunk = int(p.ChunkSize)
		return err
	})
}

// begin registers a worker, as at the start of an engine and when a server has forgotten it.
func (e *Engine) begin(ctx context.Context, w *worker) error {
	if err := e.agree(ctx, &w.client); err != nil {
		return err
	}
	q := &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: w.instance, ModelName: e.o.Model, WorldSize: int64(e.o.World), BlockSize: int64(e.o.Block),
		NumLayers: int64(e.o.Layers[0]), HiddenDimSize: int64(e.o.Hidden), DtypeStr: "float32", UseMla: true,
		NumPhysicalSlots: int64(e.Chunk),
	}
	for g, layers := range e.o.Layers {
		if len(e.o.Layers) == 1 {
			break
		}
		q.GroupLayouts = append(q.GroupLayouts, &mp.GroupLayout{
			NumLayers: int64(layers), HiddenDimSize: int64(e.o.Hidden), DtypeStr: "float32",
			TokensPerBlock: int64(e.o.Block), KvSize: 1, WindowChunks: int64(min(g, 1)),
		})
	}
	p := &mp.RegisterKvCacheEngineDrivenContextResponse{}
	if err := again(ctx, func() error {
		return e.call(ctx, &w.client, "EngineDrivenService/RegisterKvCacheEngineDrivenContext", q, p)
	}); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.segment == nil && !e.o.Inline && p.ShmName != "" {
		f, err := os.OpenFile(filepath.Join(e.o.Dir, strings.TrimPrefix(p.ShmName, "/")), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if e.segment, err = shmfile.Map(f, p.PoolSize, true); err != nil {
			return err
		}
	}
	return nil
}

// Beat is a heartbeat of each worker: it registers again if the server does not know it.
func (e *Engine) Beat(ctx context.Context) error {
	for _, w := range e.workers {
		service := "ManagementService/Ping"
		if e.o.Old {
			service = "ControllerService/Ping"
		}
		p := &mp.PingResponse{}
		if err := again(ctx, func() error {
			return e.call(ctx, &w.client, service, &mp.PingRequest{InstanceId: &w.instance}, p)
		}); err != nil {
			return err
		}
		if !p.Ok {
			if err := e.begin(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// Unregister is what a clean end of an engine says.
func (e *Engine) Unregister(ctx context.Context) error {
	var errs []error
	for _, w := range e.workers {
		errs = append(errs, e.call(ctx, &w.client, "EngineDrivenService/UnregisterKvCacheEngineDrivenContext",
			&mp.UnregisterKvCacheEngineDrivenContextRequest{InstanceId: w.instance},
			&mp.UnregisterKvCacheEngineDrivenContextResponse{}))
	}
	return errors.Join(errs...)
}

// bytes returns the size of an object of a group.
func (e *Engine) bytes(group int) int { return e.o.Layers[group] * e.Chunk * e.o.Hidden * 4 }

// identity is what an object is of, beside the tokens.
func (e *Engine) identity(r *Request, w *worker, group int) string {
	return fmt.Sprint(e.o.Model, e.o.World, w.number, group, e.o.Layers, e.o.Hidden, r.Salt)
}
