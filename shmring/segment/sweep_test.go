package segment

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/sidecar"
)

// abandoned makes a segment whose writer is gone.
func abandoned(t *testing.T, dir, name, owner string) Options {
	t.Helper()
	c := sidecarOptions()
	c.Owner = owner
	o := Options{Name: name, Dir: dir, RingSize: 4096, Sidecar: c}
	s, err := Create(o)
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
		_, err := Sweep(SweepOptions{Dir: dir, Prefix: prefix, AnyOwner: true, Remove: true})
		require.ErrorIs(t, err, shmring.ErrInvalid, prefix)
	}
	_, err := Sweep(SweepOptions{Dir: filepath.Join(dir, "none"), Prefix: "a"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir))
}

func TestSweepKeepsToPrefixAndOwner(t *testing.T) {
	for name, c := range map[string]struct {
		o    SweepOptions
		want []string
	}{
		"an owner":             {SweepOptions{Prefix: "x", Owner: "one"}, []string{"x1"}},
		"another":              {SweepOptions{Prefix: "x", Owner: "two"}, []string{"x2", "xx"}},
		"who does not exist":   {SweepOptions{Prefix: "x", Owner: "on"}, nil},
		"those without owner":  {SweepOptions{Prefix: "x"}, []string{"x0"}},
		"anyone's":             {SweepOptions{Prefix: "x", AnyOwner: true}, []string{"x0", "x1", "x2", "xx"}},
		"a longer prefix":      {SweepOptions{Prefix: "xx", AnyOwner: true}, []string{"xx"}},
		"a prefix of another":  {SweepOptions{Prefix: "y", Owner: "one"}, []string{"y1"}},
		"the end of a sidecar": {SweepOptions{Prefix: "x1.ctl", AnyOwner: true}, nil},
		"a name that is no one": {
			SweepOptions{Prefix: "z", AnyOwner: true}, nil,
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
				got, err := Sweep(c.o)
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
					require.Equal(t, all, filesIn(t, dir), "it only tells")
				}
			}
			require.Len(t, filesIn(t, dir), len(all)-2*len(c.want))
		})
	}
}

func TestSweepLeavesWhatLivesOrIsForeign(t *testing.T) {
	dir := t.TempDir()
	alive, err := Create(Options{Name: "a-alive", Dir: dir, RingSize: 4096, Sidecar: sidecarOptions()})
	require.NoError(t, err)
	foreign, err := Create(Options{Name: "a-foreign", Dir: dir, RingSize: 4096})
	require.NoError(t, err)
	require.NoError(t, foreign.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600))
	all := filesIn(t, dir)
	sweep := func() []Swept {
		got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
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
	got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a"})
	require.NoError(t, err)
	require.Equal(t, []Swept{{Name: "a", PID: os.Getpid(), Bytes: int64(sidecarSize)}}, got)
	got, err = Sweep(SweepOptions{Dir: dir, Prefix: "a", Remove: true})
	require.NoError(t, err)
	require.True(t, got[0].Removed)
	require.Empty(t, filesIn(t, dir))

	// Create does not need Sweep for that, but is no Sweep.
	o := abandoned(t, dir, "a", "")
	withSidecar := o
	withSidecar.Sidecar = sidecarOptions()
	_, err = Create(withSidecar)
	require.ErrorIs(t, err, ErrExists)
	require.ErrorContains(t, err, "Sweep")
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	s, err := Create(withSidecar)
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
	foreign, err := Create(o)
	require.NoError(t, err)
	foreign.Ring()[0] = 7
	_, err = Adopt(o)
	require.ErrorIs(t, err, shmring.ErrCorrupt)
	got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", Remove: true})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.True(t, got[0].Removed)
	require.Equal(t, []string{"a", "old"}, filesIn(t, dir))
	_, err = Adopt(o)
	require.ErrorIs(t, err, sidecar.ErrForeign)
	require.Equal(t, byte(7), foreign.Ring()[0])
	require.NoError(t, foreign.Destroy())
}

func TestSweepRefusesUnsafeFiles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		listed bool // with an error; else it is not ours to look at
	}{
		"sidecar is a link": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "a.ctl"), filepath.Join(dir, "b")))
			require.NoError(t, os.Symlink("b", filepath.Join(dir, "a.ctl")))
		}, false},
		"sidecar is a folder": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "a.ctl")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "a.ctl"), 0o700))
		}, true},
		"everyone may write the sidecar": {func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "a.ctl"), 0o606))
		}, false},
		"another user's sidecar": {func(t *testing.T, dir string) { giveAway(t, filepath.Join(dir, "a.ctl")) }, false},
		"segment is a link": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
			require.NoError(t, os.Symlink("b", filepath.Join(dir, "a")))
		}, true},
		"everyone may write the segment": {func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o606))
		}, true},
		"another user's segment": {func(t *testing.T, dir string) { giveAway(t, filepath.Join(dir, "a")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := abandoned(t, dir, "a", "")
			c.change(t, dir)
			all := filesIn(t, dir)
			for _, remove := range []bool{false, true} {
				got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: remove})
				require.NoError(t, err)
				require.Equal(t, all, filesIn(t, dir))
				if !c.listed {
					require.Empty(t, got)
					continue
				}
				require.Len(t, got, 1)
				require.Error(t, got[0].Err)
				require.False(t, got[0].Removed)
			}
			_, err := Adopt(o)
			require.Error(t, err)
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

// A segment without a writer is either adopted or removed, and by one only.
func TestSweepAndAdoptRace(t *testing.T) {
	dir := t.TempDir()
	adopted, removed := 0, 0
	for n := range 200 {
		o := abandoned(t, dir, "a", "")
		start := make(chan struct{})
		var wg sync.WaitGroup
		var segs [2]*Segment
		var errs [2]error
		var swept [2][]Swept
		for i := range 2 {
			wg.Go(func() {
				<-start
				if i > 0 && n%20 > 0 { // the second one would wait for the first
					errs[i] = sidecar.ErrOwned
					return
				}
				segs[i], errs[i] = Adopt(o)
			})
			wg.Go(func() {
				<-start
				for range n % 8 * 30 { // so that adopters win too
					runtime.Gosched()
				}
				if n%3 == 0 { // whoever only looks takes nothing from anyone
					_, _ = Sweep(SweepOptions{Dir: dir, Prefix: "a"})
				}
				got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", Remove: true})
				if err == nil {
					swept[i] = got
				}
			})
		}
		close(start)
		wg.Wait()
		winners := 0
		for i := range 2 {
			for _, s := range swept[i] {
				require.NoError(t, s.Err)
				if s.Removed {
					winners++
					removed++
				}
			}
			if errs[i] != nil {
				continue
			}
			winners++
			adopted++
			require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir))
			require.NoError(t, segs[i].Destroy())
		}
		require.Equal(t, 1, winners, "%v %v", errs, swept)
		require.Empty(t, filesIn(t, dir))
	}
	t.Logf("adopted %d times, removed %d times", adopted, removed)
}

// Whoever makes a segment while it is swept keeps it, and what ends at the same
// moment is removed whole: a segment without its sidecar would stay for ever.
func TestSweepAndCreateRace(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	for range 2 {
		sweeper.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
				if err != nil {
					t.Error(err)
					return
				}
				for _, s := range got {
					if s.Err != nil {
						t.Error(s.Err)
					}
				}
			}
		})
	}
	o := Options{Name: "a", Dir: dir, RingSize: 4096, Sidecar: sidecarOptions()}
	for range 500 {
		s, err := Create(o)
		if err != nil { // the last one is being swept
			require.ErrorIs(t, err, ErrExists)
			continue
		}
		require.FileExists(t, filepath.Join(dir, "a"))
		require.NoError(t, s.Close())
	}
	close(stop)
	sweeper.Wait()
	_, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
	require.NoError(t, err)
	require.Empty(t, filesIn(t, dir))
}

// TestSweepRemovesDamagedSidecars: one that is empty, cut short or damaged blocks
// Create, whose error says what to run; Sweep removes it if nobody has its lock.
func TestSweepRemovesDamagedSidecars(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, ctl string)
		whose  bool // the header still says whose the segment is
	}{
		"empty":             {func(t *testing.T, ctl string) { require.NoError(t, os.Truncate(ctl, 0)) }, false},
		"cut short":         {func(t *testing.T, ctl string) { require.NoError(t, os.Truncate(ctl, 100)) }, true},
		"in the identity":   {func(t *testing.T, ctl string) { require.NoError(t, os.Truncate(ctl, offInode+4)) }, false},
		"table cut short":   {func(t *testing.T, ctl string) { require.NoError(t, os.Truncate(ctl, offSlotTable)) }, true},
		"magic":             {func(t *testing.T, ctl string) { flipIn(t, ctl, 0) }, true},
		"version":           {func(t *testing.T, ctl string) { flipIn(t, ctl, offVersion) }, false},
		"number of objects": {func(t *testing.T, ctl string) { flipIn(t, ctl, offObjects) }, true},
		"inode":             {func(t *testing.T, ctl string) { flipIn(t, ctl, offInode) }, false},
		"checksum":          {func(t *testing.T, ctl string) { flipIn(t, ctl, offHeaderSum) }, true},
		"both states": {func(t *testing.T, ctl string) {
			flipIn(t, ctl, offState)
			flipIn(t, ctl, offState+stateSize)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := abandoned(t, dir, "a", "label")
			ctl := filepath.Join(dir, "a.ctl")
			c.damage(t, ctl)
			_, err := Adopt(o)
			require.Error(t, err)
			if name == "version" { // it is 3 then, and may be good
				got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
				require.NoError(t, err)
				require.ErrorContains(t, got[0].Err, "the release that made it")
				require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir))
				return
			}
			require.ErrorContains(t, err, "ringcache sweep a --any-owner --remove")
			require.NoError(t, os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "kept")))
			again := o
			again.Sidecar = sidecarOptions()
			_, err = Create(again)
			require.ErrorIs(t, err, ErrExists)
			require.ErrorContains(t, err, "ringcache sweep a --any-owner --remove")
			require.NoError(t, os.Rename(filepath.Join(dir, "kept"), filepath.Join(dir, "a")))

			// Nobody has said that it may be looked at whoever's it is.
			for _, owner := range []string{"", "other"} {
				got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", Owner: owner, Remove: true})
				require.NoError(t, err)
				require.Empty(t, got)
			}

			alive, err := os.OpenFile(ctl, os.O_RDWR, 0)
			require.NoError(t, err)
			ok, err := shmfile.TryLock(alive)
			require.NoError(t, err)
			require.True(t, ok)
			got, err := Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.True(t, got[0].Alive)
			require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir), "it has a living writer")
			require.NoError(t, alive.Close())

			got, err = Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true})
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.ErrorIs(t, got[0].Damage, shmring.ErrCorrupt)
			require.NoError(t, got[0].Err)
			require.Equal(t, []string{"a", "a.ctl"}, filesIn(t, dir), "it only looks")

			got, err = Sweep(SweepOptions{Dir: dir, Prefix: "a", AnyOwner: true, Remove: true})
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
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[at] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// TestAdoptAdvisesWriters: the texts of Adopt are for those who write.
func TestAdoptAdvisesWriters(t *testing.T) {
	dir := t.TempDir()
	o := abandoned(t, dir, "a", "label")
	changed := o
	changed.RingSize += 64
	_, err := Adopt(changed)
	var size *SizeError
	require.ErrorAs(t, err, &size)
	require.Equal(t, 4096, size.LeftRing)
	for _, part := range []string{"4096 and vLLM 0.33.0", "ringcache sweep a --any-owner --remove", "an earlier writer left"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "reader")
	_, err = Attach(changed)
	require.ErrorContains(t, err, "writer and reader must agree", "this one is for readers")

	o.Name = "b"
	_, err = Adopt(o)
	require.ErrorIs(t, err, ErrNotExist)
	require.ErrorContains(t, err, "b; create it")
	require.NotContains(t, err.Error(), "reader")
}
