package engine_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestStart: what has to be in order before the first request.
func TestStart(t *testing.T) {
	start := func(t *testing.T, s setup) error {
		s.idle = true
		return newRig(t, s).start()
	}
	t.Run("unknown version", func(t *testing.T) {
		err := start(t, setup{engine: func(o *enginetest.Options) {
			o.Ready = func(r *enginecore.Ready) { r.VLLMVersion = "0.99.0" }
		}})
		require.ErrorIs(t, err, pycompat.ErrUnknownVersion)
		require.ErrorContains(t, err, "0.99.0")
		require.ErrorContains(t, err, pycompat.Newest().Version)
	})
	t.Run("treat as", func(t *testing.T) {
		g, err := pycompat.TreatAs("0.99.0", "0.33.0")
		require.NoError(t, err)
		require.NoError(t, start(t, setup{client: func(o *engine.Options) { o.Generation = g }, engine: func(o *enginetest.Options) {
			o.Ready = func(r *enginecore.Ready) { r.VLLMVersion = "0.99.0" }
		}}))
	})
	t.Run("local version", func(t *testing.T) {
		require.NoError(t, start(t, setup{engine: func(o *enginetest.Options) {
			o.Ready = func(r *enginecore.Ready) { r.VLLMVersion += "+cpu" }
		}}))
	})
	t.Run("no version", func(t *testing.T) {
		err := start(t, setup{version: "0.22.0", client: func(o *engine.Options) { o.Generation = nil }})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, "Options.Generation")
	})
	t.Run("another version", func(t *testing.T) {
		g, err := pycompat.Lookup("0.32.0")
		require.NoError(t, err)
		var m *engine.MismatchError
		require.ErrorAs(t, start(t, setup{client: func(o *engine.Options) { o.Generation = g }}), &m)
		require.Equal(t, "0.32.0", m.Want)
	})
	t.Run("another segment", func(t *testing.T) {
		var m *engine.MismatchError
		require.ErrorAs(t, start(t, setup{mode: "shm", engine: func(o *enginetest.Options) {
			o.Segment = "" // it could not even attach
			o.Ready = func(r *enginecore.Ready) { r.VLLMVersion = "0.31.0" }
		}}), &m)
		require.Equal(t, "0.31.0", m.Got)
	})
	t.Run("no readers", func(t *testing.T) {
		err := start(t, setup{mode: "shm", version: "0.20.2", client: func(o *engine.Options) { o.Readers = 0 }})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, "Options.Readers")
	})
	t.Run("other readers", func(t *testing.T) {
		var m *engine.MismatchError
		require.ErrorAs(t, start(t, setup{workers: 2, client: func(o *engine.Options) { o.Readers = 3 }}), &m)
	})
	t.Run("too late", func(t *testing.T) {
		r := newRig(t, setup{idle: true, client: func(o *engine.Options) { o.StartTimeout = 50 * time.Millisecond }})
		err := r.Start(r.ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "StartTimeout")
		_, err = r.Generate(r.ctx, r.request(1))
		require.ErrorIs(t, err, engine.ErrNotRunning)
		require.Nil(t, r.Ready())
	})
	t.Run("twice", func(t *testing.T) {
		r := newRig(t, setup{})
		require.ErrorIs(t, r.Start(r.ctx), fs.ErrInvalid)
		r.ask(1)
	})
	t.Run("after close", func(t *testing.T) {
		r := newRig(t, setup{idle: true})
		ended := make(chan error)
		go func() { ended <- r.Start(r.ctx) }()
		require.NoError(t, r.Close(r.ctx))
		require.ErrorIs(t, <-ended, fs.ErrClosed)
		require.ErrorIs(t, r.Start(r.ctx), fs.ErrClosed)
	})
	t.Run("engine first", func(t *testing.T) {
		r := newRig(t, setup{mode: "shm", idle: true})
		up := make(chan *enginetest.Engine)
		go func() {
			e, err := enginetest.Start(r.ctx, r.o)
			if err != nil {
				t.Error(err)
			}
			up <- e
		}()
		require.Eventually(t, func() bool { return engine.Greeted(r.Client) }, testTimeout, testTick)
		require.NoError(t, r.Start(r.ctx))
		r.e = <-up
		r.ask(1, "a")
	})
	t.Run("another peer first", func(t *testing.T) {
		r := newRig(t, setup{idle: true})
		d := dealer(t, r, r.Address().Handshake, "who?")
		require.NoError(t, d.Send([]byte("x")))
		say(t, d, "HELLO")
		require.Eventually(t, func() bool { return engine.Greeted(r.Client) }, testTimeout, testTick) // or the engine may be faster
		ended := make(chan error)
		go func() { ended <- r.start() }()
		_, err := d.Recv() // it was taken for the engine
		require.NoError(t, err)
		require.NoError(t, d.Close())
		require.NoError(t, <-ended)
		r.ask(1)
	})
	t.Run("second engine", func(t *testing.T) {
		r := newRig(t, setup{})
		ctx, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond)
		defer cancel()
		o := r.o
		o.Identity = "\x01\x00"
		_, err := enginetest.Start(ctx, o)
		require.Error(t, err, "it is not awaited")
		r.ask(1)
	})
}

// TestStartBehindAnotherStart: a Start that waits for another one to return waits no
// longer than its own context.
func TestStartBehindAnotherStart(t *testing.T) {
	r := newRig(t, setup{idle: true})
	first := make(chan error, 1)
	go func() { first <- r.Start(r.ctx) }() // no engine comes
	r.until(func() bool { return engine.Starting(r.Client) })
	over, cancel := context.WithCancel(r.ctx)
	second := make(chan error, 1)
	go func() { second <- r.Start(over) }()
	cancel()
	select {
	case err := <-second:
		require.ErrorIs(t, err, context.Canceled)
	case <-r.ctx.Done():
		t.Fatal("the second Start waits for the first")
	}
	require.NoError(t, r.Close(r.ctx))
	require.ErrorIs(t, <-first, fs.ErrClosed)
}

// TestCloseDuringStartAgain: a Start that waits for the end of the engine before ends
// with Close, and starts nothing.
func TestCloseDuringStartAgain(t *testing.T) {
	r := newRig(t, setup{})
	s := engine.Session(r.Client)
	release := s.Hold()
	r.e.Kill()
	<-s.Gone()
	started := make(chan error, 1)
	go func() { started <- r.Start(r.ctx) }()
	r.until(func() bool { return engine.Starting(r.Client) })
	closed := make(chan error, 1)
	go func() { closed <- r.Close(r.ctx) }()
	select {
	case err := <-started:
		require.ErrorIs(t, err, fs.ErrClosed)
	case <-r.ctx.Done():
		t.Error("Start waits for a session that is not over")
	}
	release()
	require.NoError(t, <-closed)
}

// TestStandInThatFails: a stand-in that could not start ends the Start of the rig with
// its error. Start waited for another engine, as it has to, and so did the test.
func TestStandInThatFails(t *testing.T) {
	r := newRig(t, setup{mode: "shm", idle: true})
	r.o.Dir, r.o.Segment = t.TempDir(), "missing"
	err := r.start()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, r.ctx.Err())
}

// TestLogOfTheEnd: the log contains why an engine has gone.
func TestLogOfTheEnd(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, setup{client: func(o *engine.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }})
	r.e.Die()
	gone, why := r.Gone()
	<-gone
	require.ErrorIs(t, why(), engine.ErrCoreDead)
	require.NoError(t, r.Close(r.ctx))
	require.Contains(t, log.String(), `msg="engine gone" cause="engine: the engine is gone: the engine reported that it died; its log contains the cause"`)
}
