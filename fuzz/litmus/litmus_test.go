package litmus_test

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
)

var iterations = flag.Int("iterations", 200_000, "how often each program runs")

const (
	cells  = 500 // of a batch
	stride = 256 // bytes from cell to cell, several cache lines
)

// program is a litmus program. Both sides go through the cells of a batch, and meet at each.
type program struct {
	name string
	// prepare sets a cell before a batch, in which no side runs.
	prepare func(cell int)
	// left and right are the two sides.
	left, right func(cell int)
	// forbidden reports after a batch whether the outcome in a cell must not be.
	forbidden func(cell int) bool
	// control: the program leaves out what makes the outcome impossible, or relies on what no processor
	// promises. Its count is printed, and nothing is asserted.
	control bool
	// slow programs run a hundredth as often.
	slow bool
}

// run returns how often the program ran, how often both sides were there at the same time, and how
// often it had a forbidden outcome.
func (p program) run(batches int) (runs, met, forbidden int) {
	var here [cells]atomic.Int32 // sides that have come to a cell
	var begun, meetings atomic.Int32
	for range batches {
		for c := range cells {
			p.prepare(c)
			here[c].Store(0)
		}
		begun.Store(0)
		meetings.Store(0)
		var group sync.WaitGroup
		for n, side := range []func(int){p.left, p.right} {
			group.Go(func() {
				begun.Add(1)
				for spins := 1; begun.Load() < 2; spins++ {
					if spins%1000 == 0 {
						runtime.Gosched()
					}
				}
				together := true // else the other side does not run now: nobody waits for the rest of the batch
				for c := range cells {
					if together = meet(&here[c], together); together && n == 0 {
						meetings.Add(1)
					}
					for range (c >> (4 * n)) % 16 { // one side or the other a little later
						here[c].Load()
					}
					side(c)
				}
			})
		}
		group.Wait()
		met += int(meetings.Load())
		for c := range cells {
			if p.forbidden(c) {
				forbidden++
			}
		}
	}
	return batches * cells, met, forbidden
}

// meet waits for the other side, but not for long: there may be one processor only. It returns whether
// the other came.
func meet(here *atomic.Int32, wait bool) bool {
	here.Add(1)
	for spins := 0; wait && here.Load() < 2; spins++ {
		wait = spins < 5000
	}
	return wait
}

func (p program) test(t *testing.T) {
	batches := *iterations / cells
	if p.slow {
		batches /= 100
	}
	runs, met, got := p.run(max(batches, 1))
	kind := "must be 0"
	if p.control {
		kind = "reported"
	}
	t.Logf("| %-5s | %-60s | %10d | %10d | %8d | %s |", runtime.GOARCH, p.name, runs, met, got, kind)
	if !p.control {
		require.Zero(t, got, "forbidden outcomes of %q on %s with %d processors", p.name, runtime.GOARCH, runtime.GOMAXPROCS(0))
	}
}

// shared returns two mappings of one file of n bytes, as two processes have them.
func shared(t *testing.T, n int) (a, b []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "shared"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(int64(n)))
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	var out [2][]byte
	for i := range out {
		m, err := shmfile.Map(f, int64(n), true)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, shmfile.Unmap(m)) })
		out[i] = m
	}
	return out[0], out[1]
}
