package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
)

func TestCalls(t *testing.T) {
	r := newRig(t, setup{mode: "shm"})
	asleep, err := r.Call(r.ctx, "is_sleeping")
	require.NoError(t, err)
	require.Equal(t, false, asleep)
	done, err := r.Call(r.ctx, "reset_prefix_cache")
	require.NoError(t, err)
	require.Equal(t, true, done)
	_, err = r.Call(r.ctx, "no_such_method")
	var failed *engine.CallError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "no_such_method", failed.Method)
	r.ask(1, "a")
	require.NoError(t, r.Sleep(r.ctx, 1))
	_, err = r.Generate(r.ctx, r.request(1))
	require.ErrorIs(t, err, engine.ErrAsleep)
	require.NoError(t, r.WakeUp(r.ctx))
	_, err = r.Call(r.ctx, "shutdown")
	require.ErrorIs(t, err, engine.ErrRefused)
	require.ErrorContains(t, err, `"shutdown" is not called: it ends the engine; use Close`)
	req, made := r.begin("a")
	require.Equal(t, 1, made, "both sides have forgotten")
	req.Rollback()
	over, cancel := context.WithCancel(r.ctx)
	cancel()
	r.e.Hold(true)
	_, err = r.Call(over, "is_sleeping")
	require.ErrorIs(t, err, context.Canceled)
	r.e.Hold(false)
}

// TestBarriers: what takes items away waits for the requests that need them, and
// holds up those that come.
func TestBarriers(t *testing.T) {
	for _, m := range []string{"lru", "shm"} {
		for name, barrier := range map[string]func(*rig) error{
			"reset_mm_cache":      func(r *rig) error { return r.ClearItems(r.ctx) },
			"reset_encoder_cache": func(r *rig) error { return r.ResetEncoderCache(r.ctx) },
			"sleep":               func(r *rig) error { return r.Sleep(r.ctx, 1) },
		} {
			t.Run(m+"/"+name, func(t *testing.T) {
				r := newRig(t, setup{mode: m})
				r.ask(1, "a")
				r.e.Hold(true)
				s, err := r.Generate(r.ctx, r.request(3, "a"))
				require.NoError(t, err)
				done := make(chan error, 1)
				go func() { done <- barrier(r) }()
				if m == "shm" || name != "reset_mm_cache" { // there the order of sending is enough
					over, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
					defer cancel()
					require.Error(t, enginetest.Wait(over, func() bool { return len(r.e.Calls()) > 0 || len(done) > 0 }))
				}
				late := make(chan error, 1)
				// Others concern requests with items only, at first.
				holdsText := name == "reset_encoder_cache" || name == "sleep" && m == "lru"
				if holdsText {
					go func() {
						s, err := r.Generate(r.ctx, engine.Request{Prompt: []uint32{1}, Params: map[string]any{"max_tokens": 1}})
						if err == nil {
							_, err = s.Collect()
						}
						late <- err
					}()
					over, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
					defer cancel()
					require.Error(t, enginetest.Wait(over, func() bool { return len(r.e.Requests()) > 2 || len(late) > 0 }), "it has to wait")
				}
				r.e.Hold(false)
				got, err := s.Collect()
				require.NoError(t, err)
				require.Equal(t, want(3, "a"), got[0])
				require.NoError(t, <-done)
				switch {
				case holdsText && name == "sleep":
					require.ErrorIs(t, <-late, engine.ErrAsleep)
				case holdsText:
					require.NoError(t, <-late)
				}
				require.Equal(t, name, r.e.Calls()[len(r.e.Calls())-1])
				if name == "sleep" {
					require.NoError(t, r.WakeUp(r.ctx))
				}
				r.ask(2, "a")
				require.NoError(t, r.e.Fatal())
			})
		}
	}
}
