package engine_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/pycompat"
)

// An engine as a process of its own: this test binary.
const childEnv = "RINGCACHE_TEST_ENGINE"

func child() int {
	if os.Getenv(childEnv) == "exit" {
		return 7
	}
	size, _ := strconv.Atoi(os.Getenv("RINGCACHE_TEST_RING"))
	_, err := enginetest.Start(context.Background(), enginetest.Options{
		Handshake: os.Getenv(childEnv), Segment: os.Getenv(pycompat.SegmentEnv), Dir: os.Getenv("RINGCACHE_TEST_DIR"), RingSize: size,
		MaxNumSeqs: 16,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	select {}
}

// standIn is the command that starts one; dir is where its segment lies.
func standIn(a engine.Address, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+a.Handshake, "RINGCACHE_TEST_DIR="+dir, "RINGCACHE_TEST_RING="+strconv.Itoa(1<<20))
	cmd.Stderr = os.Stderr
	return cmd
}

// TestCommand: the client starts the engine, ends it, and starts the next.
func TestCommand(t *testing.T) {
	exit := ""
	var dir string
	r := newRig(t, setup{mode: "shm", idle: true, client: func(o *engine.Options) {
		o.Command = func(a engine.Address) *exec.Cmd {
			cmd := standIn(a, dir)
			if exit != "" {
				cmd.Env = append(cmd.Env, childEnv+"="+exit)
			}
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
