package objstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore/check"
)

// killLane is one segment whose writers are killed one after the other, so that
// what they leave adds up.
type killLane struct {
	t       *testing.T
	rng     *rand.Rand
	name    string
	report  *killReport
	m       *killModel
	worker  *killWorker
	look    *Reader
	pending string // where the last writer was killed, while nobody has adopted
}

func killWriters(t *testing.T, report *killReport, seed uint64, rereads bool, places []string, hits map[string]int) {
	l := &killLane{
		t: t, rng: rand.New(rand.NewPCG(seed, 2)), name: killName(t, "writers"), report: report,
		m: newKillModel(rereads),
	}
	w, err := pool.create(killOptions(l.name, rereads))
	require.NoError(t, err)
	require.NoError(t, w.Detach())
	l.worker = startWorker(t, l.name)
	l.look, err = Open(l.name, killReaderOptions(false))
	require.NoError(t, err)
	defer l.look.Close()
	for _, p := range places {
		l.kill(p, hits[p])
		l.quiet()
		if l.rng.IntN(3) == 0 {
			l.adopt(l.rng.IntN(16) == 0)
		}
	}
	l.worker.release()
	l.worker.judge(t, l.m)
	l.adopt(true)
	w, a, err := adoptPool(killOptions(l.name, rereads))
	require.NoError(t, err)
	require.True(t, a.Clean)
	require.Zero(t, a.Kept+a.Dropped)
	require.NoError(t, w.Close())
	require.NoError(t, l.worker.p.In.Close())
	for l.worker.p.Out.Scan() {
	}
	require.NoError(t, l.worker.p.Wait())
	requireNoFiles(t, l.name)
}

// kill starts a writer that is killed at a place, at one of the first times that
// it comes there.
func (l *killLane) kill(place string, hits int) {
	o := killOrder{
		Role: "writer", Name: l.name, Seed: l.rng.Uint64(), Rereads: l.m.rereads,
		Place: place, Nth: 1 + l.rng.IntN(max(1, min(hits/2, 150))),
	}
	lines := -1
	if place == anywhere {
		lines = 1 + l.rng.IntN(400)
	}
	p := startChild(l.t, o)
	for p.Out.Scan() {
		h, err := l.m.hear(p.Out.Text())
		require.NoError(l.t, err, "order %+v, after %s", o, l.pending)
		if l.m.adoption != nil && l.pending != "" {
			l.report.adopted(l.pending, *l.m.adoption)
			l.pending = ""
		}
		if h != nil && l.rng.IntN(4) == 0 {
			l.worker.offer(h)
		}
		if lines--; lines == 0 {
			require.NoError(l.t, p.Kill())
		}
	}
	require.NoError(l.t, p.WaitKilled())
	l.report.killed(place)
	l.m.died(place)
	l.pending = place
}

// requireSound lets the checker look at what killed writers left: at most one state record is
// half written.
func (l *killLane) requireSound() {
	r, err := check.Segment(l.name, check.Options{})
	require.NoError(l.t, err)
	for _, f := range r.Findings {
		require.Contains(l.t, f.What, "checksum of state record", "%s: %v", l.pending, r.Findings)
	}
	require.LessOrEqual(l.t, len(r.Findings), 1, "%s", l.pending)
	if l.pending == "sidecar.state.half" {
		require.Len(l.t, r.Findings, 1)
	}
}

// quiet looks at everything while there is no writer at all.
func (l *killLane) quiet() {
	l.requireSound()
	l.worker.judge(l.t, l.m)
	l.worker.ask("held", nil)
	for _, h := range l.m.handles {
		require.NoError(l.t, h.look(l.look), "in flight: %v", h)
		switch n := l.rng.IntN(16); {
		case n == 0 && !h.counted:
			// Once, so that the writer's sums stay right.
			l.worker.ask("count", h)
			h.counted = true
		case n == 1 && l.worker.views < 8:
			l.worker.hold(h)
		case n < 6:
			l.worker.ask("get", h)
		}
	}
	if l.rng.IntN(12) == 0 {
		l.worker.release()
	}
	l.worker.judge(l.t, l.m)
	l.m.sweep()
}

// adopt does what a writer does that finds the segment, and looks at what it
// gets. drain also ends everything that is in flight.
func (l *killLane) adopt(drain bool) {
	t := l.t
	w, a, err := adoptPool(killOptions(l.name, l.m.rereads))
	require.NoError(t, err)
	if l.pending != "" {
		l.report.adopted(l.pending, a)
		l.pending = ""
	}
	require.NoError(t, l.m.adopted(a))
	index, err := checkAdopted(w, l.look)
	require.NoError(t, err)
	require.NoError(t, l.m.compare(index))

	if drain {
		l.worker.release()
		w.Fence().Passed()
		l.m.handles = nil
	}
	if drain || l.rng.IntN(8) == 0 {
		_, err = w.FreeUnused()
		require.NoError(t, err)
		require.NoError(t, w.CheckStructure())
	}
	all, _, err := killObjects(w)
	require.NoError(t, err)
	for _, h := range l.m.handles {
		require.Contains(t, all, h.h.ID, "in flight: %v", h)
		require.Equal(t, h.h, all[h.h.ID].h, "the handle that is in flight")
		require.NoError(t, h.look(l.look))
	}
	l.worker.ask("held", nil)
	l.worker.judge(t, l.m)
	if drain {
		require.Zero(t, used(t, w))
		require.Zero(t, w.Len())
	}
	_, l.m.index, err = killObjects(w)
	require.NoError(t, err)
	require.NoError(t, w.Detach())
	l.m.mayBeGone = true
}
