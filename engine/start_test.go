package engine_test

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
)

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
