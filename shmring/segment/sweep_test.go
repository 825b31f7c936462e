//go:build linux

package segment_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// abandoned makes a segment whose writer is gone.
func abandoned(t *testing.T, dir, name, owner string) segment.Options {
	t.Helper()
	c := sidecarOptions()
	c.Owner = owner
	o := segment.Options{Name: name, Dir: dir, RingSize: 4096, Sidecar: c}
	s, err := segment.Create(o)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	o.Sidecar = nil
	return o
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func TestSweepNeedsAPrefix(t *testing.T) {
	dir := t.TempDir()
	abandoned(t, dir, "a", "")
	for _, prefix := range []string{"", "/", "x/a", "../a"} {
		t.Run(strconv.Quote(prefix), func(t *testing.T) {
			_, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: prefix, AnyOwner: true, Remove: true})
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, fmt.Sprintf("Prefix %q", prefix))
		})
	}
	_, err := segment.Sweep(segment.SweepOptions{Dir: filepath.Join(dir, "none"), Prefix: "a"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, "none"))
	require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir))
}

func TestSweepKeepsToPrefixAndOwner(t *testing.T) {
	for name, c := range map[string]struct {
		o    segment.SweepOptions
		want []string
	}{
		"an owner":             {segment.SweepOptions{Prefix: "x", Owner: "one"}, []string{"x1"}},
		"another":              {segment.SweepOptions{Prefix: "x", Owner: "two"}, []string{"x2", "xx"}},
		"who does not exist":   {segment.SweepOptions{Prefix: "x", Owner: "on"}, nil},
		"those without owner":  {segment.SweepOptions{Prefix: "x"}, []string{"x0"}},
		"anyone's":             {segment.SweepOptions{Prefix: "x", AnyOwner: true}, []string{"x0", "x1", "x2", "xx"}},
		"a longer prefix":      {segment.SweepOptions{Prefix: "xx", AnyOwner: true}, []string{"xx"}},
		"a prefix of another":  {segment.SweepOptions{Prefix: "y", Owner: "one"}, []string{"y1"}},
		"the end of a sidecar": {segment.SweepOptions{Prefix: "x1.ctl", AnyOwner: true}, nil},
		"a name that is no one": {
			segment.SweepOptions{Prefix: "z", AnyOwner: true}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, owner := range map[string]string{"x0": "", "x1": "one", "x2": "two", "xx": "two", "y1": "one"} {
				abandoned(t, dir, name, owner)
			}
			all := filesIn(t, dir)
			c.o.Dir = dir
			for _, remove := range []bool{false, true} {
				c.o.Remove = remove
				got, err := segment.Sweep(c.o)
				require.NoError(t, err)
				var names []string
				for _, s := range got {
					names = append(names, s.Name)
					require.NoError(t, s.Err)
					require.False(t, s.Alive)
					require.Equal(t, remove, s.Removed)
					require.Equal(t, os.Getpid(), s.PID)
					require.Equal(t, int64(4096+sidecarSize), s.Bytes)
				}
				require.Equal(t, c.want, names)
				if !remove {
					require.Equal(t, all, filesIn(t, dir), "it only lists")
				}
			}
			require.Len(t, filesIn(t, dir), len(all)-2*len(c.want))
		})
	}
}

func TestSweepLeavesWhatLivesOrIsForeign(t *testing.T) {
	dir := t.TempDir()
	alive, err := segment.Create(segment.Options{Name: "a-alive", Dir: dir, RingSize: 4096, Sidecar: sidecarOptions()})
	require.NoError(t, err)
	foreign, err := segment.Create(segment.Options{Name: "a-foreign", Dir: dir, RingSize: 4096})
	require.NoError(t, err)
	require.NoError(t, foreign.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600))
	all := filesIn(t, dir)
	sweep := func() []segment.Swept {
		got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
		require.NoError(t, err)
		return got
	}
	for range 3 {
		got := sweep()
		require.Len(t, got, 1)
		require.Equal(t, "a-alive", got[0].Name)
		require.True(t, got[0].Alive)
		require.False(t, got[0].Removed)
		require.Equal(t, "tests", got[0].Owner)
		require.Equal(t, all, filesIn(t, dir))
	}
	require.NoError(t, alive.Close())
	require.True(t, sweep()[0].Removed, "it was closed and not removed")
	require.Equal(t, []string{"a-foreign", "a.txt"}, filesIn(t, dir))
}

// What is left of a writer that was killed while it made or removed a segment.
func TestSweepRemovesLoneSidecars(t *testing.T) {
	dir := t.TempDir()
	abandoned(t, dir, "a", "")
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a"})
	require.NoError(t, err)
	require.Equal(t, []segment.Swept{{Name: "a", PID: os.Getpid(), Bytes: int64(sidecarSize)}}, got)
	got, err = segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", Remove: true})
	require.NoError(t, err)
	require.True(t, got[0].Removed)
	require.Empty(t, filesIn(t, dir))

	// Create does not need Sweep for that, but is no Sweep.
	o := abandoned(t, dir, "a", "")
	withSidecar := o
	withSidecar.Sidecar = sidecarOptions()
	_, err = segment.Create(withSidecar)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "Sweep")
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	s, err := segment.Create(withSidecar)
	require.NoError(t, err)
	require.NoError(t, s.Destroy())
	require.Empty(t, filesIn(t, dir))
}

// A segment that something else made under the name since is not the sidecar's.
func TestSweepLeavesASegmentThatIsNotTheSidecars(t *testing.T) {
	dir := t.TempDir()
	o := abandoned(t, dir, "a", "")
	old := filepath.Join(dir, "old")
	require.NoError(t, os.Rename(filepath.Join(dir, "a"), old)) // keeps its inode from being given to the new one
	foreign, err := segment.Create(o)
	require.NoError(t, err)
	foreign.Ring()[0] = 7
	_, err = segment.Adopt(o)
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	require.ErrorContains(t, err, "it belongs to another segment")
	got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", Remove: true})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.True(t, got[0].Removed)
	require.Equal(t, []string{"a", "old"}, filesIn(t, dir))
	_, err = segment.Adopt(o)
	require.ErrorIs(t, err, segment.ErrForeign)
	require.Equal(t, byte(7), foreign.Ring()[0])
	require.NoError(t, foreign.Destroy())
}

func TestSweepRefusesUnsafeFiles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		listed bool   // with an error; otherwise it is skipped
		what   string // what Adopt reports, and Sweep if it is listed
	}{
		"sidecar is a link": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "a.ctl"), filepath.Join(dir, "b")))
			require.NoError(t, os.Symlink("b", filepath.Join(dir, "a.ctl")))
		}, false, "a.ctl is a symbolic link"},
		"sidecar is a folder": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "a.ctl")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "a.ctl"), 0o700))
		}, true, "a.ctl: is a directory"},
		"everyone may write the sidecar": {func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "a.ctl"), 0o606))
		}, false, "a.ctl is writable by everyone"},
		"another user's sidecar": {func(t *testing.T, dir string) {
			giveAway(t, filepath.Join(dir, "a.ctl"))
		}, false, "a.ctl belongs to uid 12345"},
		"segment is a link": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
			require.NoError(t, os.Symlink("b", filepath.Join(dir, "a")))
		}, true, "a is a symbolic link"},
		"everyone may write the segment": {func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o606))
		}, true, "a is writable by everyone"},
		"another user's segment": {func(t *testing.T, dir string) {
			giveAway(t, filepath.Join(dir, "a"))
		}, true, "a belongs to uid 12345"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := abandoned(t, dir, "a", "")
			c.change(t, dir)
			all := filesIn(t, dir)
			for _, remove := range []bool{false, true} {
				got, err := segment.Sweep(segment.SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: remove})
				require.NoError(t, err)
				require.Equal(t, all, filesIn(t, dir))
				if !c.listed {
					require.Empty(t, got)
					continue
				}
				require.Len(t, got, 1)
				require.ErrorContains(t, got[0].Err, c.what)
				require.False(t, got[0].Removed)
			}
			_, err := segment.Adopt(o)
			require.ErrorContains(t, err, c.what)
		})
	}
}

func giveAway(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	require.NoError(t, os.Chown(path, 12345, 12345))
}
