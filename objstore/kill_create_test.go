package objstore

import (
	"bufio"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// creatorChild makes a segment with one object and, when told, removes it.
func creatorChild(o killOrder) error {
	w, err := pool.create(killOptions(o.Name, true))
	if err != nil {
		return err
	}
	h := killHandle{key: "k", nonce: o.Seed, n: 5000}
	r, err := w.Begin("r")
	if err != nil {
		return err
	}
	if h.h, err = r.Put(h.key, killItem(h.n, h.bytes()), PutOptions{Note: killNote(h.nonce, h.n)}); err != nil {
		return err
	}
	say("P %v", h)
	bufio.NewScanner(os.Stdin).Scan()
	r.Rollback()
	return w.Close()
}

// killCreators kills processes that make or remove a segment.
func killCreators(t *testing.T, report *killReport, seed uint64, each int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	name := killName(t, "creators")
	path := filepath.Join(shmfile.DefaultDir, name)
	left := map[string][]string{ // files
		"sidecar.link":     nil,
		"segment.link":     {path + sidecar.Suffix},
		"segment.linked":   {path, path + sidecar.Suffix},
		"segment.unlinked": {path + sidecar.Suffix},
	}
	for i := range each {
		for _, place := range createPlaces {
			p := startChild(t, killOrder{Role: "creator", Name: name, Seed: rng.Uint64(), Place: place, Nth: 1})
			reader := createdSegment(t, p, name)
			require.NoError(t, p.WaitKilled())
			report.killed(place)
			require.Equal(t, left[place], filesOf(t, name), "killed at %s", place)
			if reader != nil {
				reader()
			}
			switch i % 3 {
			case 0:
				sweepKilled(t, name, left[place] != nil)
			case 1:
				w, a, err := adoptPool(killOptions(name, true))
				if place != "segment.linked" {
					require.ErrorIs(t, err, fs.ErrNotExist)
					break
				}
				require.NoError(t, err)
				require.Equal(t, shmstore.Adoption{Epoch: 2}, a)
				report.adopted(place, a)
				require.NoError(t, w.Close())
				requireNoFiles(t, name)
			}
			w, err := pool.create(killOptions(name, true))
			if len(left[place]) == 2 && i%3 == 2 {
				require.ErrorIs(t, err, fs.ErrExist)
				sweepKilled(t, name, true)
				w, err = pool.create(killOptions(name, true))
			}
			require.NoError(t, err)
			_, err = w.Put("k", bytesItem(100))
			require.NoError(t, err)
			require.NoError(t, w.CheckStructure())
			require.NoError(t, w.Close())
			requireNoFiles(t, name)
		}
	}
}

// createdSegment attaches to the segment of a creator that came so far, and lets
// the creator go on. A worker that attached reads on whatever happens to the
// segment's name; the function that is returned does so.
func createdSegment(t *testing.T, p *fault.Process, name string) (read func()) {
	t.Helper()
	for p.Out.Scan() {
		h, err := parseHandle(p.Out.Text()[2:])
		require.NoError(t, err, p.Out.Text())
		r, err := Open(name, killReaderOptions(true))
		require.NoError(t, err)
		require.NoError(t, h.look(r))
		require.NoError(t, p.In.Close())
		read = func() {
			require.NoError(t, h.look(r))
			require.NoError(t, r.Close())
		}
	}
	return read
}

// sweepKilled sweeps a name whose writer is dead, after looking what would be
// swept.
func sweepKilled(t *testing.T, name string, something bool) {
	t.Helper()
	for _, remove := range []bool{false, true} {
		before := filesOf(t, name)
		got, err := segment.Sweep(segment.SweepOptions{Prefix: name, Owner: "kill", Remove: remove})
		require.NoError(t, err)
		if !something {
			require.Empty(t, got)
			continue
		}
		require.Len(t, got, 1)
		require.NoError(t, got[0].Err)
		require.False(t, got[0].Alive)
		require.Equal(t, remove, got[0].Removed)
		if !remove {
			require.Equal(t, before, filesOf(t, name))
		}
	}
	requireNoFiles(t, name)
}

func TestSweepSparesTheLiving(t *testing.T) {
	name := killName(t, "sweep")
	p := startChild(t, killOrder{Role: "creator", Name: name})
	line, err := p.Line()
	require.NoError(t, err)
	h, err := parseHandle(line[2:])
	require.NoError(t, err)

	_, err = pool.create(killOptions(name, true))
	require.ErrorIs(t, err, fs.ErrExist)
	_, _, err = adoptPool(killOptions(name, true))
	require.ErrorIs(t, err, segment.ErrOwned)
	got, err := segment.Sweep(segment.SweepOptions{Prefix: name, AnyOwner: true, Remove: true})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.True(t, got[0].Alive)
	require.False(t, got[0].Removed)
	require.Equal(t, p.PID(), got[0].PID)
	require.Len(t, filesOf(t, name), 2)
	r, err := Open(name, killReaderOptions(false))
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, h.look(r))

	require.NoError(t, p.Kill())
	require.NoError(t, p.WaitKilled())
	sweepKilled(t, name, true)
	require.NoError(t, h.look(r), "who is attached reads on")
}

// A Detach that fails is none: who is killed later has not left the segment clean.
func TestDetachThatFailsIsNotClean(t *testing.T) {
	w, _, _ := realPool(t, Options{})
	require.NoError(t, w.Segment().Hold())
	require.ErrorIs(t, w.Detach(), ErrBusy)
	require.False(t, sidecar.Of(w.Segment()).State().Clean)
	w.Segment().Release()
	require.NoError(t, w.Close())
}
