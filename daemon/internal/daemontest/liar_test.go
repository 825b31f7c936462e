//go:build linux

package daemontest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// liarRole is a process that lies. It prints its counts.
type liarRole struct{ LieOptions }

func (r *liarRole) run() {
	counts, err := Lie(context.Background(), r.LieOptions)
	if err != nil {
		say("! %v", err)
		os.Exit(1)
	}
	say("%s", encoded(counts))
}

// runLiars runs some lying clients in this process, each with its share of the lies, and prints their counts.
func runLiars(lies int, run func(i uint64, lies int, counts map[string]int) error) {
	const clients = 4
	all := make([]map[string]int, clients)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = map[string]int{}
		wg.Go(func() {
			if err := run(uint64(i), (lies+i)/clients, all[i]); err != nil {
				say("! %v", err)
				os.Exit(1)
			}
		})
	}
	wg.Wait()
	sum := map[string]int{}
	for _, counts := range all {
		for what, n := range counts {
			sum[what] += n
		}
	}
	say("%s", encoded(sum))
}

// surviveLies starts a daemon and lets processes lie to it, each with its share of the lies, beside an honest
// process, which it has to serve until the end. What the daemon takes is bounded, and then it holds nothing.
func (r *daemonRole) surviveLies(
	t *testing.T, honest role, lies int, liar func(i uint64, lies int) role, heap uint64, private int64,
) {
	t.Helper()
	p := r.start(t, "")
	require.True(t, p.wait("ready"))
	share := lies / liarProcesses
	var liars []role
	for i := range uint64(liarProcesses) {
		liars = append(liars, liar(i, share))
	}
	l := p.lieTo(honest, liars, func() {}, func(crowd *crowd) {
		for range 20 { // it is still served
			<-crowd.steps
		}
		p.rests(crowd)
	})
	require.GreaterOrEqual(t, l.lies, share*liarProcesses)
	require.Less(t, l.after.Heap, l.before.Heap+heap)
	if !failpoint.Enabled { // the race detector takes more
		require.Less(t, l.most, private)
	}
	p.end()
	require.Empty(t, p.bad)
}

// lied is what came of lies to a daemon.
type lied struct {
	counts                map[string]int
	lies                  int
	before, during, after facts
	most                  int64 // memory of the daemon's own
}

// lieTo runs processes that lie to the daemon beside honest clients, and calls look again and again meanwhile. When the
// liars have ended, rest ends the honest ones; then the daemon has to be as before.
func (p *process) lieTo(honest role, liars []role, look func(), rest func(*crowd)) (r lied) {
	t := p.t
	t.Helper()
	r.before, r.counts = p.facts(), map[string]int{}
	crowd := newCrowd(t)
	crowd.add(honest)
	outs, ended := make([]bytes.Buffer, len(liars)), make(chan error, len(liars))
	for i, l := range liars {
		cmd := child(t, l)
		cmd.Stdout = &outs[i]
		require.NoError(t, start(cmd))
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(cmd)
	}
	for running := len(liars); running > 0; {
		select {
		case err := <-ended:
			require.NoError(t, err, "liars: %s, %s", &outs[0], &outs[1])
			running--
		case <-p.ended:
			t.Fatalf("the daemon has ended: %s", p.bad)
		case <-time.After(time.Millisecond):
			look()
			_, private, _ := takes(p.cmd.Process.Pid)
			r.most = max(r.most, private)
		}
		require.Empty(t, crowd.wrong())
	}
	r.during = p.facts()
	rest(crowd)
	require.Empty(t, crowd.wrong())
	r.after = p.await("goroutines and descriptors as before", func(f facts) bool {
		return f.Goroutines <= r.before.Goroutines+2 && f.Descriptors <= r.before.Descriptors
	})
	for i := range outs {
		var c map[string]int
		require.NoError(t, json.Unmarshal(outs[i].Bytes(), &c), &outs[i])
		for what, n := range c {
			r.counts[what] += n
			r.lies += n
		}
	}
	t.Logf("%d lies; the daemon: %.1f MiB of its own at most, heap %.1f MiB before, %.1f during, %.1f after; goroutines %d, %d, %d; descriptors %d, %d, %d",
		r.lies, mib(r.most), mib(r.before.Heap), mib(r.during.Heap), mib(r.after.Heap), r.before.Goroutines, r.during.Goroutines, r.after.Goroutines,
		r.before.Descriptors, r.during.Descriptors, r.after.Descriptors)
	logCounts(t, r.counts)
	logCounts(t, crowd.counts)
	return r
}

func logCounts(t *testing.T, counts map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%12d %s", counts[what], what)
	}
}
