package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// Start connects to a frontend, and returns when the answer has come with the addresses of
// the sockets: the engine is about to become ready then.
func Start(ctx context.Context, o Options) (*Engine, error) {
	var err error
	if o.Generation, err = pycompat.Resolve(o.Generation); err != nil {
		return nil, err
	}
	o.Workers, o.MaxNumSeqs = max(o.Workers, 1), max(o.MaxNumSeqs, 1)
	if o.MaxModelLen == 0 {
		o.MaxModelLen = 1 << 22
	}
	if o.Identity == "" {
		o.Identity = "\x00\x00"
	}
	c, err := wire.New(serde.Options{Generation: o.Generation})
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, wire: c, aborted: map[string]bool{}}
	e.changed = sync.NewCond(&e.mu)
	if err := e.connect(ctx); err != nil {
		e.Kill()
		return nil, err
	}
	return e, nil
}

func (e *Engine) connect(ctx context.Context) error {
	init, err := again(ctx, func() (*enginecore.Init, error) { return e.hello(ctx) })
	if err != nil {
		return fmt.Errorf("enginetest: no answer to HELLO: %w", errors.Join(err, ctx.Err()))
	}
	if err := e.attach(); err != nil {
		return err
	}
	if e.sockets.in, err = again(ctx,
		func() (*Peer, error) { return Dealer(ctx, init.Inputs[0], e.o.Identity) }); err != nil {
		return err
	}
	if e.sockets.out, err = again(ctx, func() (*Peer, error) { return Push(ctx, init.Outputs[0]) }); err != nil {
		return err
	}
	ready := &enginecore.Ready{
		VLLMVersion: e.o.Generation.Version, WorldSize: e.o.Workers, MaxModelLen: e.o.MaxModelLen,
		MaxNumSeqs:          e.o.MaxNumSeqs,
		MaxNumBatchedTokens: 512, DType: "float32", DataParallelSize: 1, TensorParallelSize: e.o.Workers,
		PipelineParallelSize: 1,
	}
	if e.o.Ready != nil {
		e.o.Ready(ready)
	}
	b, err := e.wire.EncodeReady(ready)
	if err != nil {
		return err
	}
	if err := e.sockets.in.Send(b); err != nil {
		return err
	}
	if err := e.greet("READY"); err != nil {
		return err
	}
	e.wait.Go(e.receive)
	e.wait.Go(e.loop)
	return nil
}

// errTurnedAway means that the frontend closed a connection.
var errTurnedAway = errors.New("enginetest: the frontend closed the connection")

// again connects until the frontend does not turn the connection away, as libzmq does:
// under load a greeting may come too late.
func again[T any](ctx context.Context, connect func() (T, error)) (T, error) {
	for {
		v, err := connect()
		if !errors.Is(err, errTurnedAway) || ctx.Err() != nil {
			return v, err
		}
		time.Sleep(time.Millisecond)
	}
}

// hello sends the hello and returns the answer.
func (e *Engine) hello(ctx context.Context) (init *enginecore.Init, err error) {
	if e.sockets.handshake, err = Dealer(ctx, e.o.Handshake, e.o.Identity); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { e.sockets.handshake.Close() })
	var m [][]byte
	if err = e.greet("HELLO"); err == nil {
		m, err = e.sockets.handshake.Recv()
	}
	if !stop() || err != nil {
		e.sockets.handshake.Close()
		return nil, fmt.Errorf("%w: %w", errTurnedAway, err)
	}
	return wire.DecodeInit(m[0])
}

func (e *Engine) greet(status string) error {
	b, err := wire.EncodeHandshake(&enginecore.Handshake{Status: status, Headless: true})
	if err != nil {
		return err
	}
	return e.sockets.handshake.Send(b)
}

// attach is what workers do when they start.
func (e *Engine) attach() (err error) {
	if e.o.Mirror > 0 {
		e.mirror, err = upstream.NewReceiverCache[*serde.Item](lrusync.Options{Capacity: e.o.Mirror,
			Generation: e.o.Generation})
		return err
	}
	if e.o.Segment == "" {
		return nil
	}
	for range e.o.Workers {
		r, err := objstore.Open(e.o.Segment, objstore.ReaderOptions{
			RingSize: e.o.RingSize, Readers: e.o.Workers, Generation: e.o.Generation, Dir: e.o.Dir, SidecarLock: true,
		})
		if err != nil {
			return err
		}
		e.workers = append(e.workers, r)
	}
	return nil
}
