package engine_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
)

const (
	testTimeout = 2 * time.Minute // a guard against hanging
	testTick    = time.Millisecond
)

// TestDeath: each way of an engine to go ends streams and calls with an error that
// says so, and the next engine finds the cache warm.
func TestDeath(t *testing.T) {
	ways := map[string]struct {
		do    func(r *rig)
		cause error
	}{
		"killed":   {func(r *rig) { r.e.Kill() }, engine.ErrDisconnected},
		"dead":     {func(r *rig) { r.e.Die() }, engine.ErrCoreDead},
		"deaf":     {func(r *rig) { r.e.Deafen() }, engine.ErrDeaf},
		"no input": {func(r *rig) { require.NoError(t, engine.SendRaw(r.Client, "\x00", "\x91")) }, engine.ErrDisconnected},
	}
	for name, way := range ways {
		for _, m := range []string{"lru", "shm"} {
			t.Run(name+"/"+m, func(t *testing.T) {
				r := newRig(t, setup{mode: m, workers: 2})
				r.ask(2, "a")
				r.e.Hold(name != "deaf")
				s, err := r.Generate(r.ctx, r.request(1_000_000, "a", "b"))
				require.NoError(t, err)
				gone, why := r.Gone()
				call := make(chan error, 1)
				if name == "deaf" { // which has to come first, or the call is answered
					way.do(r)
					engine.Watch(r.Client, 50*time.Millisecond)
				}
				go func() { call <- r.Check(r.ctx) }()
				if name != "deaf" {
					way.do(r)
				}
				for err == nil {
					_, err = s.Next(r.ctx)
				}
				require.ErrorIs(t, err, way.cause)
				require.ErrorIs(t, err, engine.ErrDead)
				require.ErrorIs(t, <-call, engine.ErrDead)
				<-gone
				require.ErrorIs(t, why(), way.cause)

				q := r.request(2, "a")
				_, err = r.Generate(r.ctx, q)
				require.ErrorIs(t, err, engine.ErrDead)
				_, err = r.Call(r.ctx, "is_sleeping")
				require.ErrorIs(t, err, engine.ErrDead)
				r.e.Kill()

				r.o.Workers = 3 // the new one may be another
				require.NoError(t, r.start())
				s, err = r.Generate(r.ctx, q) // was held all the time
				require.NoError(t, err)
				got, err := s.Collect()
				require.NoError(t, err)
				require.Equal(t, want(2, "a"), got[0])
				if m == "shm" {
					req, made := r.begin("a", "b")
					require.Zero(t, made, "the cache is warm")
					req.Rollback()
				}
				require.Equal(t, int64(2), r.Stats().Starts)
			})
		}
	}
}

// TestClose: what is under way may end, as long as the context lets it; the rest is
// aborted.
func TestClose(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		r := newRig(t, setup{mode: "shm"})
		r.e.Hold(true)
		s, err := r.Generate(r.ctx, r.request(3, "a"))
		require.NoError(t, err)
		over, cancel := context.WithCancel(r.ctx)
		cancel()
		closed := make(chan error)
		go func() { closed <- r.Close(r.ctx) }()
		require.Eventually(t, func() bool {
			_, err := r.Generate(over, engine.Request{})
			return errors.Is(err, fs.ErrClosed)
		}, testTimeout, testTick)
		r.e.Hold(false)
		got, err := s.Collect()
		require.NoError(t, err)
		require.Equal(t, want(3, "a"), got[0])
		require.NoError(t, <-closed)
		_, err = r.Generate(r.ctx, engine.Request{})
		require.ErrorIs(t, err, fs.ErrClosed)
	})
	t.Run("too late", func(t *testing.T) {
		r := newRig(t, setup{mode: "shm"})
		s, err := r.Generate(r.ctx, r.request(1_000_000, "a"))
		require.NoError(t, err)
		over, cancel := context.WithCancel(r.ctx)
		cancel()
		require.NoError(t, r.Close(over))
		_, err = s.Collect()
		require.ErrorIs(t, err, fs.ErrClosed)
		require.Zero(t, r.cache.Stats().Quarantined, "the engine has confirmed")
		require.NoError(t, r.e.Fatal())
	})
}
