//go:build linux

package segment_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/segment"
)

func leased(t *testing.T, dir, name string) {
	t.Helper()
	l, err := leasetable.Create(dir, name, leasetable.Options{Leases: 2, Items: 1, Generation: 1})
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// The table of leases goes with its segment, and nothing else does that has such a name.
func TestLeasesGoWithTheSegment(t *testing.T) {
	dir := t.TempDir()
	abandoned(t, dir, "a", "")
	leased(t, dir, "a")
	abandoned(t, dir, "b", "")
	abandoned(t, dir, "b.leases", "") // a segment
	require.NoError(t, os.WriteFile(filepath.Join(dir, "c.leases"), []byte("mine"), 0o600))
	abandoned(t, dir, "c", "")
	abandoned(t, dir, "d", "")
	leased(t, dir, "d")
	require.NoError(t, os.Truncate(filepath.Join(dir, "d.ctl"), 100))
	for _, prefix := range []string{"a", "b", "c", "d"} {
		swept, err := segment.Sweep(segment.SweepOptions{Prefix: prefix, Dir: dir, AnyOwner: true})
		require.NoError(t, err)
		if prefix == "a" {
			require.Equal(t, int64(4096+sidecarSize+4096+2*576+64), swept[0].Bytes)
		}
	}
	for _, prefix := range []string{"a", "c", "d"} {
		swept, err := segment.Sweep(segment.SweepOptions{Prefix: prefix, Dir: dir, AnyOwner: true, Remove: true})
		require.NoError(t, err)
		require.Len(t, swept, 1)
		require.True(t, swept[0].Removed)
	}
	require.Equal(t, []string{"b", "b.ctl", "b.leases", "b.leases.ctl", "c.leases"}, filesIn(t, dir))

	s, err := segment.Create(segment.Options{Name: "e", Dir: dir, RingSize: 4096, Sidecar: sidecarOptions()})
	require.NoError(t, err)
	leased(t, dir, "e")
	require.NoError(t, s.Destroy())
	b, err := segment.Adopt(segment.Options{Name: "b", Dir: dir, RingSize: 4096})
	require.NoError(t, err)
	require.NoError(t, b.Destroy())
	require.Equal(t, []string{"b.leases", "b.leases.ctl", "c.leases"}, filesIn(t, dir))
}

// Yield leaves the segment to the next writer while the mapping is in use.
func TestYield(t *testing.T) {
	s, o := withSidecar(t)
	require.NoError(t, s.Hold())
	_, err := segment.Adopt(o)
	require.ErrorIs(t, err, segment.ErrOwned)
	require.NoError(t, s.Yield())
	require.NoError(t, s.Yield(), "again")
	next, err := segment.Adopt(o)
	require.NoError(t, err)
	require.True(t, sidecar.Of(next).State().Clean)
	next.Ring()[7] = 42
	require.Equal(t, byte(42), s.Ring()[7], "still mapped")
	require.Error(t, s.Hold())
	s.Release()
	_, err = segment.Adopt(o)
	require.ErrorIs(t, err, segment.ErrOwned, "the end of the old mapping takes nothing from the new writer")
	require.NoError(t, next.Destroy())
}

// TestSweepTakesWhatTheDaemonKnowsOfEngines, and no file of that name that is another's.
func TestSweepTakesWhatTheDaemonKnowsOfEngines(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"xa": `{"generation":1}`, "xb": "mine", "xc": ""} {
		abandoned(t, dir, name, "")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+shmfile.EnginesSuffix), []byte(text), 0o600))
	}
	all, err := segment.Sweep(segment.SweepOptions{Prefix: "x", Dir: dir, AnyOwner: true, Remove: true})
	require.Len(t, all, 3)
	require.EqualValues(t, len(`{"generation":1}`), all[0].Bytes-all[2].Bytes, "it counts what it removes")
	require.NoError(t, err)
	require.Equal(t, []string{"xb.lmcache"}, filesIn(t, dir))
}
