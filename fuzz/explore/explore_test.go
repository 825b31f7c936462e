package explore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/fuzz/explore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// increments declares processes that add 1 to n, in a step or in two.
func increments(processes int, locked, atomic bool) func(*explore.Run) {
	return func(r *explore.Run) {
		n := explore.NewVar(r, "n", 0)
		lock := explore.NewLock(r, "lock", false)
		for i := range processes {
			r.Process(fmt.Sprint("process ", i), func(p *explore.Process) {
				if locked {
					lock.Lock(p)
				}
				p.Step("load n")
				x := n.Get()
				if !atomic {
					p.Step("store n + 1")
				}
				n.Set(x + 1)
				if locked {
					lock.Unlock(p)
				}
			})
		}
		r.AtEnd("counted", "no increment may get lost", func() error {
			if n.Get() != processes {
				return fmt.Errorf("%d increments gave %d", processes, n.Get())
			}
			return nil
		})
	}
}

func TestLostIncrementIsFound(t *testing.T) {
	res := explore.Explore(explore.Options{}, increments(2, false, false))
	require.NotNil(t, res.Failure)
	require.Equal(t, "counted", res.Failure.Name)
	require.Equal(t, []explore.TraceStep{
		{Process: "process 0", What: "load n", State: "n=0 lock=free"},
		{Process: "process 1", What: "load n", State: "n=0 lock=free"},
		{Process: "process 0", What: "store n + 1", State: "n=1 lock=free"},
		{Process: "process 1", What: "store n + 1", State: "n=1 lock=free"},
	}, res.Failure.Steps)
	require.False(t, res.Complete)
}

// TestNoOrderIsLost: pruning covers exactly the orders that there are.
func TestNoOrderIsLost(t *testing.T) {
	for _, c := range []struct {
		name           string
		processes      int
		locked, atomic bool
		orders         uint64
	}{
		{"atomic steps, 2", 2, false, true, 2},
		{"atomic steps, 5", 5, false, true, 120},
		{"under a lock", 3, true, false, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := increments(c.processes, c.locked, c.atomic)
			pruned := explore.Explore(explore.Options{}, program)
			all := explore.Explore(explore.Options{NoPruning: true}, program)
			require.Nil(t, pruned.Failure)
			require.True(t, pruned.Complete)
			require.Equal(t, c.orders, pruned.Orders)
			require.Equal(t, c.orders, all.Orders)
			require.LessOrEqual(t, pruned.Executions, all.Executions)
		})
	}
	free := func(r *explore.Run) {
		for i := range 3 {
			r.Process(fmt.Sprint(i), func(p *explore.Process) {
				for range 4 {
					p.Step("nothing")
				}
			})
		}
	}
	res := explore.Explore(explore.Options{}, free)
	require.Equal(t, uint64(34650), res.Orders, "12! / (4! 4! 4!)")
	require.Equal(t, 125, res.States, "5 places of each")
}

// TestPruningKeepsWhatAProcessSaw: two orders that lead to the same shared state go on
// differently, since a process saw something else on the way.
func TestPruningKeepsWhatAProcessSaw(t *testing.T) {
	program := func(own bool) func(r *explore.Run) {
		return func(r *explore.Run) {
			v := explore.NewVar(r, "v", 0)
			raw := 0
			if own {
				r.State(func() string { return fmt.Sprint("raw=", raw) })
			}
			r.Process("reader", func(p *explore.Process) {
				p.Step("look")
				saw := raw
				if !own {
					saw = v.Get()
				}
				p.Step("look again")
				if saw == 1 {
					p.Failf("saw it")
				}
			})
			r.Process("writer", func(p *explore.Process) {
				for _, x := range []int{1, 0} {
					p.Step("store %d", x)
					raw = x
					v.Set(x)
				}
			})
		}
	}
	for _, own := range []bool{false, true} {
		res := explore.Explore(explore.Options{}, program(own))
		require.NotNil(t, res.Failure, "own state %t", own)
		require.Equal(t, "assertion", res.Failure.Name)
		require.Len(t, res.Failure.Steps, 3, "the shortest, not all five steps")
	}
}

func TestDeadlockIsFound(t *testing.T) {
	res := explore.Explore(explore.Options{}, func(r *explore.Run) {
		a, b := explore.NewLock(r, "a", true), explore.NewLock(r, "b", true)
		both := func(first, second *explore.Lock) func(p *explore.Process) {
			return func(p *explore.Process) {
				first.Lock(p)
				second.Lock(p)
				second.Unlock(p)
				first.Unlock(p)
			}
		}
		r.Process("P", both(a, b))
		r.Process("Q", both(b, a))
	})
	require.NotNil(t, res.Failure)
	require.Equal(t, "deadlock", res.Failure.Name)
	require.EqualError(t, res.Failure.Err, `P waits to do "lock b", Q waits to do "lock a"`)
	require.Len(t, res.Failure.Steps, 2)
}

// TestKilledHolder: a lock that does not become free when its holder dies stops the others; a
// robust one does not.
func TestKilledHolder(t *testing.T) {
	program := func(robust bool) func(r *explore.Run) {
		return func(r *explore.Run) {
			lock := explore.NewLock(r, "lock", robust)
			for _, name := range []string{"P", "Q"} {
				r.Process(name, func(p *explore.Process) {
					lock.Lock(p)
					defer lock.Unlock(p) // not when it is killed
				}).Killable()
			}
		}
	}
	res := explore.Explore(explore.Options{Crashes: 1}, program(false))
	require.NotNil(t, res.Failure)
	require.Equal(t, "deadlock", res.Failure.Name)
	require.Equal(t, "is killed, before: unlock lock", res.Failure.Steps[1].What)
	res = explore.Explore(explore.Options{Crashes: 2}, program(true))
	require.Nil(t, res.Failure)
	require.True(t, res.Complete)
	require.Nil(t, explore.Explore(explore.Options{}, program(false)).Failure, "nobody is killed unless asked for")
}

func TestWhatEndsAnExecution(t *testing.T) {
	one := func(f func(p *explore.Process)) func(*explore.Run) {
		return func(r *explore.Run) { r.Process("P", f) }
	}
	for name, c := range map[string]struct {
		program func(*explore.Run)
		failure string
	}{
		"panic":     {one(func(p *explore.Process) { p.Step("x"); panic("oh") }), "panic"},
		"assertion": {one(func(p *explore.Process) { p.Step("x"); p.Failf("oh") }), "assertion"},
		"initially": {func(r *explore.Run) {
			r.Always("never", "", func() error { return errors.New("oh") })
		}, "never"},
	} {
		t.Run(name, func(t *testing.T) {
			res := explore.Explore(explore.Options{}, c.program)
			require.NotNil(t, res.Failure)
			require.Equal(t, c.failure, res.Failure.Name)
			require.ErrorContains(t, res.Failure, "oh")
		})
	}
	t.Run("not deterministic", func(t *testing.T) {
		executed := 0
		res := explore.Explore(explore.Options{}, one(func(p *explore.Process) {
			executed++
			p.Step("x")
			if executed == 2 {
				p.Failf("now")
			}
		}))
		require.Equal(t, "not deterministic", res.Failure.Name)
	})
	t.Run("stuck", func(t *testing.T) {
		blocked := make(chan struct{})
		defer close(blocked)
		res := explore.Explore(explore.Options{Timeout: 3 * time.Second}, one(func(p *explore.Process) {
			p.Step("x")
			p.Step("y")
			<-blocked
		}))
		require.Equal(t, "stuck", res.Failure.Name)
		require.Len(t, res.Failure.Steps, 2, "they end with the one that does not end")
		require.Equal(t, "y", res.Failure.Steps[1].What)
	})
	t.Run("bounds", func(t *testing.T) {
		endless := one(func(p *explore.Process) {
			for {
				p.Step("x")
			}
		})
		res := explore.Explore(explore.Options{MaxSteps: 10}, endless)
		require.Nil(t, res.Failure)
		require.False(t, res.Complete)
		require.Equal(t, 10, res.Longest)
		res = explore.Explore(explore.Options{MaxExecutions: 5}, endless)
		require.False(t, res.Complete)
		require.Equal(t, 5, res.Executions)
	})
}

// TestHooks: code without a Process makes steps through the Run, and cleanups come after it.
func TestHooks(t *testing.T) {
	executions, cleaned := 0, 0
	res := explore.Explore(explore.Options{}, func(r *explore.Run) {
		executions++
		r.Cleanup(func() { cleaned++ })
		word := 0
		r.State(func() string { return fmt.Sprint("word=", word) })
		load := func() int { r.Access("load"); r.Saw(word); return word }
		load() // no step: no process runs
		for _, name := range []string{"P", "Q"} {
			r.Process(name, func(*explore.Process) {
				x := load()
				r.Access("store")
				word = x + 1
			})
		}
		r.AtEnd("counted", "", func() error {
			if load() != 2 {
				return errors.New("lost")
			}
			return nil
		})
	})
	require.Equal(t, "counted", res.Failure.Name)
	require.Equal(t, "load -> 0", res.Failure.Steps[1].What)
	require.Equal(t, executions, cleaned)
}
