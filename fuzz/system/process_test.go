package system_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/system"
)

// TestProcessPipelines: both directions carry far more than a pipe can hold.
func TestProcessPipelines(t *testing.T) {
	p := peerOf(t, "agent", 0)
	ops := []fuzz.Op{newRing()}
	for i := range 20000 {
		ops = append(ops, fuzz.Op{ID: i + 1, Name: "ring.header", Args: map[string]any{
			"ring": "r", "address": 1 << 40, strings.Repeat("no field of that name", 10): nil,
		}})
	}
	replies, err := p.Do(ops)
	require.NoError(t, err)
	require.Len(t, replies, len(ops))
	for _, r := range replies[1:] {
		require.Equal(t, "invalid", r.Kind)
	}
	require.NoError(t, p.Close())
}

func TestProcessBreaks(t *testing.T) {
	for mode, want := range map[string][]string{
		"dies":               {"ended without a reply", "exit status 7", "its stderr ended with", "out of luck"},
		"dies within a line": {"ended without a reply", "exit status 0"},
		"hangs":              {"hangs", "no reply within", "waiting for a lock"},
		"garbage":            {"no reply", "core dumped"},
		"panics":             {"panicked"},
	} {
		t.Run(mode, func(t *testing.T) {
			limit := time.Minute
			if mode == "hangs" {
				limit = 2 * time.Second // what is tested is that it ends
			}
			p := peerOf(t, mode, limit)
			replies, err := p.Do([]fuzz.Op{newRing()})
			require.NoError(t, err)
			require.Len(t, replies, 1)
			replies, err = p.Do([]fuzz.Op{alloc(5), alloc(6), alloc(77), alloc(8)})
			var broken *system.BrokenError
			require.ErrorAs(t, err, &broken)
			require.Equal(t, 2, broken.Done)
			require.Len(t, replies, 2)
			for _, w := range want {
				require.ErrorContains(t, err, w)
			}
			if mode == "hangs" {
				require.ErrorIs(t, err, system.ErrHangs)
			}
			_, again := p.Do([]fuzz.Op{alloc(5)})
			require.ErrorIs(t, again, broken, "it is not asked any more")
			require.NoError(t, p.Close(), "what broke it was reported")
		})
	}
}

func TestProcessThatDoesNotStart(t *testing.T) {
	_, err := system.Start(t.Context(), system.ProcessOptions{})
	require.ErrorContains(t, err, "no command")
	_, err = system.Start(t.Context(), system.ProcessOptions{}, "/nowhere/agent")
	require.ErrorContains(t, err, "/nowhere/agent")

	p := peerOf(t, "exits at once", 0)
	_, err = p.Do([]fuzz.Op{newRing()})
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no license")

	_, err = system.StartVLLM(t.Context(), system.VLLMOptions{Python: "/nowhere/python"})
	require.ErrorContains(t, err, "/nowhere/python")
}

// TestProcessIsEnded by the context, and by Close if it does not end itself.
func TestProcessIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p, err := startPeer(ctx, "agent", 0)
	require.NoError(t, err)
	cancel()
	_, err = p.Do([]fuzz.Op{newRing()})
	require.Error(t, err)
	require.NoError(t, p.Close())

	p, err = startPeer(context.Background(), "does not end", time.Second)
	require.NoError(t, err)
	require.ErrorContains(t, p.Close(), "did not end within")
}

// TestBrokenSystemIsMinimized: the sequence ends with the operation that broke the system, and
// has no more than it needs.
func TestBrokenSystemIsMinimized(t *testing.T) {
	for _, mode := range []string{"dies", "garbage", "panics"} {
		t.Run(mode, func(t *testing.T) {
			d := differential(t, "ring", "0.32.0")
			d.Family.Generate = sizes
			d.Follower = func(ctx context.Context) (fuzz.System, error) { return startPeer(ctx, mode, 0) }
			r, err := d.Run(t.Context())
			require.NoError(t, err)
			require.NotNil(t, r.Failure)
			require.Equal(t, "broken", r.Failure.Invariant)
			require.ErrorContains(t, r.Failure, "the second system broke at the last")
			require.Len(t, r.Failure.Ops, 1, fuzz.Format(r.Failure.Ops))
			require.Contains(t, fuzz.Format(r.Failure.Ops), fatalSize)

			d.Lead, d.Follower = d.Follower, d.Lead
			r, err = d.Run(t.Context())
			require.NoError(t, err)
			require.NotNil(t, r.Failure)
			require.ErrorContains(t, r.Failure, "the first system broke at the last")
			require.Contains(t, fuzz.Format(r.Failure.Ops), fatalSize)
		})
	}
}

// TestHangIsNotMinimized, since each try would take the limit.
func TestHangIsNotMinimized(t *testing.T) {
	d := differential(t, "ring", "0.32.0")
	d.Family.Generate = sizes
	starts := 0
	d.Follower = func(ctx context.Context) (fuzz.System, error) {
		starts++
		return startPeer(ctx, "hangs", time.Second)
	}
	r, err := d.Run(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, r.Failure, system.ErrHangs)
	require.Contains(t, r.Failure.Ops[len(r.Failure.Ops)-1].Line(), fatalSize)
	require.Equal(t, 2, starts)
}

// sizes generates allocations up to the one that breaks a bad peer.
func sizes(system.Case) fuzz.Generator {
	return func(c *fuzz.Choices, length int) []fuzz.Op {
		ops := []fuzz.Op{newRing()}
		for i := range length {
			op := alloc(1 + c.Int(90))
			op.ID = i + 1
			ops = append(ops, op)
		}
		return ops
	}
}

// TestTwoProcesses compares two agents, which run the same names at the same time.
func TestTwoProcesses(t *testing.T) {
	for _, family := range []string{"ring", "store"} {
		d := differential(t, family, "0.32.0")
		d.Lead = func(ctx context.Context) (fuzz.System, error) { return startPeer(ctx, "agent", 0) }
		d.Follower = d.Lead
		d.Ops = 2000
		r, err := d.Run(t.Context())
		require.NoError(t, err)
		require.Nil(t, r.Failure, fmt.Sprint(r.Failure))
		require.GreaterOrEqual(t, r.Ops, 2000)
	}
}
