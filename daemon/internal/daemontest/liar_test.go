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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// liarRole is a process that lies. It prints its counts.
type liarRole struct{ LieOptions }

func (r *liarRole) run() {
	counts, err := Lie(context.Background(), r.LieOptions)
	if err != nil {
		say("! %v", err)
		os.Exit(1)
	}
	b, err := json.Marshal(counts)
	if err != nil {
		panic(err)
	}
	say("%s", b)
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
