package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
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

// An engine as a process of its own: this test binary.
const childEnv = "RINGCACHE_TEST_ENGINE"

func child() int {
	if os.Getenv(childEnv) == "exit" {
		return 7
	}
	size, _ := strconv.Atoi(os.Getenv("RINGCACHE_TEST_RING"))
	_, err := enginetest.Start(context.Background(), enginetest.Options{
		Handshake: os.Getenv(childEnv), Segment: os.Getenv(pycompat.SegmentEnv), Dir: os.Getenv("RINGCACHE_TEST_DIR"), RingSize: size,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// TestCommand: the client starts the engine, ends it, and starts the next.
func TestCommand(t *testing.T) {
	exit := ""
	var dir string
	r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) {
		o.Command = func(a engine.Address) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+a.Handshake, "RINGCACHE_TEST_DIR="+dir, "RINGCACHE_TEST_RING="+strconv.Itoa(1<<20))
			if exit != "" {
				cmd.Env = append(cmd.Env, childEnv+"="+exit)
			}
			cmd.Stderr = os.Stderr
			return cmd
		}
	}})
	dir, r.e = r.o.Dir, &enginetest.Engine{}
	defer func() { r.e = nil }()

	exit = "exit"
	err := r.Start(r.ctx)
	require.ErrorIs(t, err, engine.ErrDead)
	var ended *exec.ExitError
	require.ErrorAs(t, err, &ended)
	require.ErrorContains(t, err, "the engine's process ended: exit status 7")
	exit = ""

	require.NoError(t, r.Start(r.ctx))
	r.ask(3, "a")
	pid := engine.Pid(r.Client)
	s, err := r.Generate(r.ctx, r.request(1_000_000, "a"))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	_, err = s.Collect()
	require.ErrorIs(t, err, engine.ErrDead)
	require.NoError(t, r.Start(r.ctx))
	require.NotEqual(t, pid, engine.Pid(r.Client))
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	r.ask(3, "a")
	require.Equal(t, int64(1), r.cache.Stats().Produced)

	pid = engine.Pid(r.Client)
	require.NoError(t, r.Close(r.ctx))
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	require.Zero(t, r.cache.Stats().Quarantined)

	c, err := engine.New(engine.Options{Transport: nil, Model: model()})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.Nil(t, c)
}
