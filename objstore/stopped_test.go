package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestStoppedWriterIsAlive: a writer that is stopped keeps its segment. Readers go on, nobody adopts or sweeps it, and
// when it goes on, it goes on as if nothing had been.
func TestStoppedWriterIsAlive(t *testing.T) {
	name := killName(t, "stopped")
	p := startChild(t, killOrder{Role: "creator", Name: name, Seed: 5})
	line, err := p.Line()
	require.NoError(t, err)
	h, err := parseHandle(line[2:])
	require.NoError(t, err)
	r, err := Open(name, killReaderOptions(true))
	require.NoError(t, err)

	for range 5 {
		require.NoError(t, p.Stop())
		for range 20 {
			require.NoError(t, h.look(r))
		}
		_, _, err = adoptPool(killOptions(name, true))
		require.ErrorIs(t, err, segment.ErrOwned)
		got, err := segment.Sweep(segment.SweepOptions{Prefix: name, AnyOwner: true, Remove: true})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.True(t, got[0].Alive && !got[0].Removed)
		_, err = pool.create(killOptions(name, true))
		require.ErrorContains(t, err, name, "the name is taken")
		rep, err := check.Segment(name, check.Options{})
		require.NoError(t, err)
		require.Empty(t, rep.Findings)
		require.True(t, rep.Alive)
		require.Equal(t, 1, rep.Chunks)
		require.NoError(t, p.Continue())
	}
	require.NoError(t, h.look(r))
	require.NoError(t, p.Stop())
	require.NoError(t, p.Kill(), "a stopped process can be killed")
	require.NoError(t, p.WaitKilled())
	w, a, err := adoptPool(killOptions(name, true))
	require.NoError(t, err)
	require.Equal(t, 1, a.Kept)
	require.NoError(t, h.look(r))
	require.NoError(t, w.CheckStructure())
	require.NoError(t, r.Close())
	w.Fence().Passed()
	require.NoError(t, w.Close())
	requireNoFiles(t, name)
}

// TestStoppedReaderHolds: a reader that is stopped while it looks at an object keeps the object, and finds its own bytes when
// it goes on. The writer needs nothing of it.
func TestStoppedReaderHolds(t *testing.T) {
	name := killName(t, "stopped-reader")
	w, err := pool.create(killOptions(name, true))
	require.NoError(t, err)
	h := killHandle{key: "k0", nonce: 1, n: 4000}
	q := begin(t, w, "r")
	h.h, err = q.Request.Put(h.key, killItem(h.n, h.bytes()), PutOptions{Note: killNote(h.nonce, h.n)})
	require.NoError(t, err)
	require.NoError(t, q.Commit())
	k := startWorker(t, name)
	k.hold(&killIssued{killHandle: h})
	require.NoError(t, k.err)
	require.NoError(t, k.p.Stop())

	q.Finish()
	requireHeld(t, w, h)
	require.Zero(t, deadReaders(t, w), "it lives")
	require.NoError(t, w.CheckStructure())
	rep, err := check.Segment(name, check.Options{})
	require.NoError(t, err)
	require.Empty(t, rep.Findings)

	require.NoError(t, k.p.Continue())
	require.True(t, k.ask("held", nil), "%v", k.err)
	k.release()
	require.NoError(t, k.err)
	gone, err := w.Evict(h.key)
	require.NoError(t, err)
	require.True(t, gone)
	require.NoError(t, k.p.In.Close())
	require.NoError(t, k.p.Wait())
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
	requireNoFiles(t, name)
}
