//go:build linux

package segment_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestSweepRemovesDamagedSidecars: one that is empty, cut short or damaged blocks
// Create, whose error names the command to run; Sweep removes it if nobody has its lock.
func TestSweepRemovesDamagedSidecars(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, file string)
		whose  bool   // the header still names the segment
		what   string // is wrong, in the words of Adopt
	}{
		"empty":             {func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 0)) }, false, "it has 0 bytes"},
		"cut short":         {func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 100)) }, true, "it has 100 bytes"},
		"in the identity":   {func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, offInode+4)) }, false, "it has 44 bytes"},
		"table cut short":   {func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, offMarks)) }, true, "4096 bytes for 4 slots and 5 objects"},
		"magic":             {func(t *testing.T, file string) { flipIn(t, file, 0) }, true, "it does not begin as one"},
		"version":           {func(t *testing.T, file string) { flipBitsIn(t, file, offVersion, 4) }, false, "layout version 5, this release reads 1"},
		"version 0":         {func(t *testing.T, file string) { flipIn(t, file, offVersion) }, true, "layout version 0, this release reads 1"},
		"number of objects": {func(t *testing.T, file string) { flipIn(t, file, offObjects) }, true, "its header's checksum is wrong"},
		"inode":             {func(t *testing.T, file string) { flipIn(t, file, offInode) }, false, "its header's checksum is wrong"},
		"checksum":          {func(t *testing.T, file string) { flipIn(t, file, offHeaderSum) }, true, "its header's checksum is wrong"},
		"both states": {func(t *testing.T, file string) {
			flipIn(t, file, offState)
			flipIn(t, file, offState+stateSize)
		}, true, "neither of its state records is whole"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := abandoned(t, dir, "a", "label")
			file := filepath.Join(dir, "a.ctl")
			c.damage(t, file)
			_, err := segment.Adopt(o)
			require.ErrorContains(t, err, c.what)
			if name == "version" { // it is 7 then, and may be good
				got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
				require.NoError(t, err)
				require.ErrorContains(t, got[0].Err, "the release that made it")
				require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir))
				return
			}
			require.ErrorContains(t, err, "ringcache sweep a --any-owner --remove")
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "kept")))
			again := o
			again.Sidecar = sidecarOptions()
			_, err = segment.Create(again)
			require.ErrorIs(t, err, fs.ErrExist)
			require.ErrorContains(t, err, "ringcache sweep a --any-owner --remove")
			require.NoError(t, os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, "a")))

			// Without AnyOwner it is skipped, since its label can't be read.
			for _, owner := range []string{"", "other"} {
				got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", Owner: owner, Remove: true})
				require.NoError(t, err)
				require.Empty(t, got)
			}

			alive, err := os.OpenFile(file, os.O_RDWR, 0)
			require.NoError(t, err)
			ok, err := shmfile.TryLock(alive)
			require.NoError(t, err)
			require.True(t, ok)
			got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.True(t, got[0].Alive)
			require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir), "it has a living writer")
			require.NoError(t, alive.Close())

			got, err = segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.ErrorIs(t, got[0].Damage, shmring.ErrCorrupt)
			require.ErrorContains(t, got[0].Damage, c.what)
			require.NoError(t, got[0].Err)
			require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir), "it only looks")

			got, err = segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.True(t, got[0].Removed)
			if c.whose {
				require.NoError(t, got[0].Err)
				require.Empty(t, filesIn(t, dir))
				return
			}
			require.ErrorContains(t, got[0].Err, filepath.Join(dir, "a"))
			require.Equal(t, []string{"a"}, filesIn(t, dir), "it may be vLLM's")
		})
	}
}

func flipIn(t *testing.T, path string, at int) {
	t.Helper()
	flipBitsIn(t, path, at, 1)
}

func flipBitsIn(t *testing.T, path string, at int, bits byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[at] ^= bits
	require.NoError(t, os.WriteFile(path, b, 0o600))
}
