package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/ringcache/ringcache/bench/internal/stats"
)

// results are what was measured. Memory is in bytes.
type results struct {
	size                            int
	timed                           []timed
	perObject, perSession, perLease float64
	empty, full                     int64
	restarts                        []float64 // seconds
	found                           int
}

// Check reports what is not as it has to be.
func (r *results) Check(o options) error {
	var err error
	if slowest := slices.Max(r.restarts); slowest > o.Goal.Seconds() {
		err = fmt.Errorf("from a kill to the next hit: %.3f s, the goal is %v", slowest, o.Goal)
	}
	if r.found != o.Objects {
		err = errors.Join(err, fmt.Errorf("after %d kills %d objects are there of %d", len(r.restarts), r.found,
			o.Objects))
	}
	return err
}

func (r *results) Write(w io.Writer, o options) {
	fmt.Fprintf(w, "# The daemon\n\nWritten by `go run ./daemon` in `bench`. A segment of %g GiB with %d objects of %d bytes; %d processors; client and daemon are two processes.\n\n"+
		"Times are in microseconds, of a turn: one call, or Reserve and Commit after each other. The floor is an echo: a process that answers frames of the same lengths over "+
		"the same kind of socket, and does nothing. Sessions call as fast as they can, so with many of them a turn waits for its place among the others.\n\n"+
		"| turn | sessions | p50 | p99 | floor: p50 | p99 | ratio: p50 | p99 | calls/s | floor: calls/s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
		o.GiB, o.Objects, r.size, runtime.NumCPU())
	for _, t := range r.timed {
		fmt.Fprintf(w, "| %s | %d | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f | %.0f | %.0f |\n", t.kind, t.sessions,
			t.ours.p50, t.ours.p99, t.floor.p50, t.floor.p99,
			stats.Ratio(t.ours.p50, t.floor.p50), stats.Ratio(t.ours.p99, t.floor.p99), t.ours.rate*float64(t.calls),
			t.floor.rate*float64(t.calls))
	}
	fmt.Fprintf(w, "\n| what the daemon's process takes | bytes |\n| --- | ---: |\n| for each object | %.0f |\n| for each session with its connection | %.0f |\n"+
		"| for each lease with one object | %.0f |\n| its own memory with nothing in the segment | %.1f MiB |\n| with all objects | %.1f MiB |\n",
		r.perObject, r.perSession, r.perLease, float64(r.empty)/mib, float64(r.full)/mib)
	restarts := stats.Sorted(r.restarts)
	fmt.Fprintf(w, "\nFrom SIGKILL to the next hit of a client that had a lease, with the start of the next daemon and the new connection: median %.3f s, at most %.3f s, of %d kills. "+
		"Afterwards %d of %d objects were there, every byte of them compared, and every reservation could be committed.\n",
		stats.Median(restarts), restarts[len(restarts)-1], len(restarts), r.found, o.Objects)
}
