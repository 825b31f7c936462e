package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// counts are the sums of all parts.
type counts struct {
	operations, objects, bytes                 atomic.Int64
	writerKills, readerKills, pairKills, stops atomic.Int64
	ends, restarts, adoptions, kept, swept     atomic.Int64
	late                                       atomic.Int64 // late reads that found their object removed, as they may
	losses, wrong                              atomic.Int64
	python                                     atomic.Bool // a Python reader has answered
	pair                                       pairTotals
}

// pairTotals are the sums of pairCounts.
type pairTotals struct{ requests, drifts, repairs, lost, overtaken, omitted atomic.Int64 }

func (t *pairTotals) add(c pairCounts) {
	t.requests.Add(c.Requests)
	t.drifts.Add(c.Drifts)
	t.repairs.Add(c.Repairs)
	t.lost.Add(c.Dropped)
	t.overtaken.Add(c.Swapped)
	t.omitted.Add(c.Omitted)
}

func (t *pairTotals) String() string {
	return fmt.Sprintf("%d requests, %d lost, %d overtaken, %d drifts reported, %d repaired, %d items named only",
		t.requests.Load(), t.lost.Load(), t.overtaken.Load(), t.drifts.Load(), t.repairs.Load(), t.omitted.Load())
}

// line is the progress, and the first part of the summary.
func (c *counts) line(took time.Duration) string {
	return fmt.Sprintf("soak: %.1f min, %d operations, %d objects, %.1f GiB verified; "+
		"kills: %d writers, %d readers, %d of the pair; %d stops, %d orderly ends, %d engine restarts; "+
		"%d adoptions kept %d, %d swept; pair: %v; %d late handles refused; %d losses, %d wrong bytes",
		took.Minutes(), c.operations.Load(), c.objects.Load(), float64(c.bytes.Load())/(1<<30),
		c.writerKills.Load(), c.readerKills.Load(), c.pairKills.Load(), c.stops.Load(), c.ends.Load(),
		c.restarts.Load(),
		c.adoptions.Load(), c.kept.Load(), c.swept.Load(), &c.pair, c.late.Load(), c.losses.Load(), c.wrong.Load())
}
