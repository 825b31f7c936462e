package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/mmcache"
)

type failing struct {
	zmq.Transport
	on    atomic.Bool
	after atomic.Int64 // so many sends succeed before
}

type failingSocket struct {
	engine.Socket
	f *failing
}

func (f *failing) Router(e string, n int64) (engine.Socket, error) {
	s, err := f.Transport.Router(e, n)
	return failingSocket{s, f}, err
}

func (s failingSocket) Send(peer string, frames ...[]byte) error {
	if s.f.on.Load() && s.f.after.Add(-1) < 0 {
		return errors.New("broken pipe")
	}
	return s.Socket.Send(peer, frames...)
}

func TestFailedSendIsNoMisuseOfTheCache(t *testing.T) {
	f := &failing{}
	r := newRig(t, setup{mode: "shm", client: func(o *engine.Options) { o.Transport = f }})
	q := r.request(1, "a")
	f.on.Store(true)
	_, err := r.Generate(r.ctx, q)
	require.ErrorIs(t, err, engine.ErrDead)
	r.until(func() bool { return r.Stats().InFlight == 0 })
	st := r.cache.Stats()
	q.Items.Rollback()
	require.Zero(t, st.Misused)
}

// A producer that panics, which net/http recovers from: nothing of the request is left.
func TestPanicInGenerateLeavesNothing(t *testing.T) {
	r := newRig(t, setup{mode: "lru"})
	r.ask(1, "a")
	q := r.request(1, "a") // a hit: nothing was made
	q.Items.Rollback()
	var err error
	q.Items, err = r.cache.Begin(r.ctx, "panics", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
	require.NoError(t, err)
	_, err = q.Items.Item(r.ctx, "a", func(context.Context, *mmcache.Builder) error { panic("decoder") })
	require.NoError(t, err)
	require.True(t, r.cache.Invalidate("a"))
	require.Panics(t, func() { _, _ = r.Generate(r.ctx, q) })
	q.Items.Rollback()
	inFlight := r.Stats().InFlight
	short, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	err = r.ResetEncoderCache(short)
	require.NoError(t, err, "%d in flight", inFlight)
}

// A producer whose own error is io.EOF, as of an image that is cut short, looked like the
// regular end of the stream.
func TestEOFOfAProducerIsNotTheEnd(t *testing.T) {
	err := resend(t, func(context.Context, *mmcache.Builder) error { return fmt.Errorf("image: %w", io.EOF) })
	require.ErrorContains(t, err, "image: EOF")
	require.NotErrorIs(t, err, io.EOF)
}

// A producer that panics when it is called again, since the engine lost the item, ends its
// request, not the process.
func TestPanicInResendEndsTheRequestAlone(t *testing.T) {
	err := resend(t, func(context.Context, *mmcache.Builder) error { panic("decoder") })
	require.ErrorContains(t, err, "decoder")
}

// resend makes a request for an item that the engine has lost, so that a producer is
// called again, and returns the error that ends the request.
func resend(t *testing.T, p mmcache.Producer) *engine.RequestError {
	t.Helper()
	r := newRig(t, setup{mode: "lru"})
	r.ask(1, "a")
	q := r.request(1, "a")
	q.Items.Rollback()
	var err error
	q.Items, err = r.cache.Begin(r.ctx, "again", mmcache.Want{Key: "a", Bytes: 4096, Modality: "image"})
	require.NoError(t, err)
	_, err = q.Items.Item(r.ctx, "a", p)
	require.NoError(t, err)
	r.e.Forget()
	s, err := r.Generate(r.ctx, q)
	require.NoError(t, err)
	_, err = s.Collect()
	var e *engine.RequestError
	require.ErrorAs(t, err, &e)
	return e
}
