package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// noSpaces is a layout whose files do not contain their space.
type noSpaces struct{ Native }

func (noSpaces) Name() string { return "no spaces" }

func (noSpaces) Path(k tier.Key) (string, error) {
	return Native{}.Path(tier.Key{Name: k.Name})
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.ErrorContains(t, err, "another process has this root")
	require.NoError(t, l.Close())

	_, err = Open(dir, Options{Layout: noSpaces{}, Space: "a"})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, `a root of the layout "native", not of "no spaces"`)
	_, err = Open(dir, Options{Space: "a"})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "a root for every space")

	one := filepath.Join(t.TempDir(), "is", "made")
	require.NoError(t, open(t, one, Options{Space: "a"}).Close())
	for _, space := range []string{"", "b"} {
		_, err = Open(one, Options{Space: space})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, `a root for the space "a"`)
	}
	layout, space, err := Identify(one)
	require.NoError(t, err)
	require.Equal(t, []string{"native", "a"}, []string{layout, space})
	layout, space, err = Identify(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"native", ""}, []string{layout, space})
	_, _, err = Identify(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, open(t, one, Options{Space: "a"}).Close(), "nothing was refused for good")

	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.tex"), nil, 0o600))
	_, err = Open(foreign, Options{})
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "thesis.tex")
	entries, err := os.ReadDir(foreign)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing was made there")

	for lock, want := range map[string]error{
		`{"format":2,"layout":"native"}`: fs.ErrInvalid, `{"format":9,"layout":"native"}`: errors.ErrUnsupported, `{"format":1,`: tier.ErrCorrupt,
		"\x01": tier.ErrCorrupt,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, lockPath), []byte(lock), 0o600))
		_, err = Open(dir, Options{})
		require.ErrorIs(t, err, want, lock)
	}
	for _, lock := range []string{"", "\x00\x00\x00"} { // whoever made it was killed, or lost power
		require.NoError(t, os.WriteFile(filepath.Join(dir, lockPath), []byte(lock), 0o600))
		require.NoError(t, open(t, dir, Options{}).Close())
		layout, _, err := Identify(dir)
		require.NoError(t, err)
		require.Equal(t, "native", layout)
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(file, Options{})
	require.ErrorIs(t, err, tier.ErrUnavailable)
}

func TestValidate(t *testing.T) {
	require.NoError(t, Options{}.Validate())
	for _, o := range []Options{
		{Capacity: -1}, {MinAge: -1}, {Workers: -1}, {KeepDamaged: -1}, {Sync: -1}, {Sync: SyncFolder + 1},
		{Space: "a\x00"},
		{Layout: noSpaces{}},
	} {
		require.ErrorIs(t, o.Validate(), fs.ErrInvalid)
		_, err := Open(t.TempDir(), o)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	require.NoError(t, Options{Layout: noSpaces{}, Space: "a"}.Validate())
	require.Equal(t, SyncNever, Options{}.withDefaults().Sync)
	require.Equal(t, SyncFile, Options{Shared: true}.withDefaults().Sync)
	require.Equal(t, 10*time.Minute, Options{Shared: true}.withDefaults().MinAge)
	require.Zero(t, Options{}.withDefaults().MinAge)
}

// escaping is a layout whose paths are wrong.
type escaping struct{ Native }

func (escaping) Path(k tier.Key) (string, error) { return k.Name, nil }

func TestPathsOfALayoutStayInTheRoot(t *testing.T) {
	l := open(t, t.TempDir(), Options{Layout: escaping{}, Space: "space"})
	for _, name := range []string{"../a", "/a", "a/../../b", ".", ".ringcache/lock", ".ringcache", "a//b"} {
		require.ErrorIs(t, put(l, objectOf(name, 1), []byte{1}), fs.ErrInvalid, name)
		require.ErrorIs(t, stat(l, name), fs.ErrInvalid, name)
	}
}

// Objects of other spaces are not in a root for one space.
func TestOneSpace(t *testing.T) {
	dir := t.TempDir()
	all := open(t, dir, Options{})
	for _, space := range []string{"space", "other"} {
		require.NoError(t, put(all, tier.Object{Key: tier.Key{Space: space, Name: "a"}, Size: 1}, []byte{1}))
	}
	require.NoError(t, all.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, lockPath)))
	l, err := Open(dir, Options{Space: "space"})
	require.ErrorIs(t, err, fs.ErrExist)
	require.Nil(t, l)
	l = ready(t, dir, Options{Space: "space", Shared: true})
	require.EqualValues(t, 1, l.Usage().Objects)
	require.EqualValues(t, 1, l.Indexed().Foreign)
	other := tier.Key{Space: "other", Name: "a"}
	requireMiss(t, l.Stat(t.Context(), []tier.Key{other})[0].Err)
	requireMiss(t, l.Delete(t.Context(), []tier.Key{other})[0])
	gets := []tier.Get{{Key: other}}
	l.Get(t.Context(), gets)
	requireMiss(t, gets[0].Err)
	require.ErrorIs(t, put(l, tier.Object{Key: other}, nil), fs.ErrInvalid)
}

// A root that is only read needs no lock, and leaves everything as it is.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 1000)
	mustPut(t, l, "damaged", 1000)
	flip(t, fileOf(t, dir, "damaged"), 500)
	temp := filepath.Join(dir, tempDir, "somebody writes")
	require.NoError(t, os.WriteFile(temp, nil, 0o600))

	r := ready(t, dir, Options{ReadOnly: true, Capacity: 1})
	mustGet(t, r, "a", 1000)
	_, err := get(r, "damaged")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	require.ErrorIs(t, put(r, objectOf("b", 0), nil), tier.ErrUnavailable)
	require.ErrorIs(t, r.Delete(t.Context(), []tier.Key{keyOf("a")})[0], tier.ErrUnavailable)
	bad := 0
	for v, err := range r.Verify(t.Context()) {
		require.NoError(t, err)
		if v.Err != nil {
			require.ErrorIs(t, v.Err, tier.ErrCorrupt)
			bad++
		}
	}
	require.Equal(t, 1, bad)
	objects, temporary, _ := files(t, dir)
	require.Len(t, objects, 2)
	require.Len(t, temporary, 1)

	// It sees what the other one does.
	mustPut(t, l, "later", 10)
	mustGet(t, r, "later", 10)
	require.NoError(t, stat(r, "later"))
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("later")})[0])
	requireMiss(t, stat(r, "later"))
	_, err = get(r, "later")
	requireMiss(t, err)
	require.NoError(t, l.Close())

	require.NoError(t, open(t, dir, Options{}).Close())
	_, temporary, _ = files(t, dir)
	require.Empty(t, temporary, "whoever has the lock sweeps")

	empty := t.TempDir()
	require.NoError(t, ready(t, empty, Options{ReadOnly: true}).Close())
	entries, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, entries)
	_, err = Open(filepath.Join(empty, "absent"), Options{ReadOnly: true})
	require.Error(t, err)
}

// A root whose folder or lock file is gone is away, and comes back.
func TestVanished(t *testing.T) {
	for name, tt := range map[string]struct {
		vanish, back func(t *testing.T, dir string)
		kept         bool
	}{
		"removed and made again": {
			func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
			func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(dir, 0o700)) }, false,
		},
		"lock file removed": {
			func(t *testing.T, dir string) {
				require.NoError(t, os.Rename(filepath.Join(dir, ownDir), dir+".away"))
				require.NoError(t, os.Rename(dir, dir+".objects"))
			},
			func(t *testing.T, dir string) {
				require.NoError(t, os.Rename(dir+".objects", dir))
				require.NoError(t, os.Rename(dir+".away", filepath.Join(dir, ownDir)))
			}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "root")
			now := time.Now()
			l := ready(t, dir, Options{now: func() time.Time { return now }})
			mustPut(t, l, "a", 100)
			tt.vanish(t, dir)
			away := func() {
				t.Helper()
				now = now.Add(time.Minute)
				for range 2 {
					_, err := get(l, "a")
					require.ErrorIs(t, err, tier.ErrUnavailable)
					require.NotErrorIs(t, err, tier.ErrNotFound)
					require.ErrorIs(t, stat(l, "a"), tier.ErrUnavailable)
					require.ErrorIs(t, put(l, objectOf("b", 1), []byte{1}), tier.ErrUnavailable)
					require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0], tier.ErrUnavailable)
					require.ErrorIs(t, l.WaitIndex(t.Context()), tier.ErrUnavailable)
					for _, err := range l.List(t.Context(), "") {
						require.ErrorIs(t, err, tier.ErrUnavailable)
					}
					for _, err := range l.Verify(t.Context()) {
						require.ErrorIs(t, err, tier.ErrUnavailable)
					}
				}
			}
			away()
			_, err := os.Lstat(dir)
			require.ErrorIs(t, err, fs.ErrNotExist, "nobody makes it but its owner")
			tt.back(t, dir)
			now = now.Add(time.Minute)
			_, err = get(l, "a")
			if tt.kept {
				require.NoError(t, err)
			} else {
				requireMiss(t, err)
			}
			mustPut(t, l, "b", 100)
			mustGet(t, l, "b", 100)
		})
	}
}

// Whoever removes the lock file of an open root loses nothing to two writers: the first one stops.
func TestLockTakenByAnother(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	l := ready(t, dir, Options{now: func() time.Time { return now }})
	mustPut(t, l, "a", 100)
	require.NoError(t, os.Remove(filepath.Join(dir, lockPath)))
	other := open(t, dir, Options{Shared: true}) // without its lock file the folder looks like somebody's
	now = now.Add(time.Hour)
	_, err := get(l, "a")
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.ErrorIs(t, put(l, objectOf("b", 1), []byte{1}), tier.ErrUnavailable)
	mustGet(t, other, "a", 100)
	require.NoError(t, other.Close())
	now = now.Add(time.Hour)
	mustGet(t, l, "a", 100)
}

// A lock file that somebody removes before it is locked is made again.
func TestLockFileGoesBeforeItIsLocked(t *testing.T) {
	failpoint.Need(t)
	dir := t.TempDir()
	removed := 0
	failpoint.Set(func(name string) {
		if name == "disk.lock.created" && removed < 3 {
			removed++
			require.NoError(t, os.Remove(filepath.Join(dir, lockPath)))
		}
	})
	defer failpoint.Set(nil)
	l := open(t, dir, Options{})
	require.Equal(t, 3, removed)
	mustPut(t, l, "a", 1)
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, tier.ErrUnavailable)
}

func TestClosed(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	mustPut(t, l, "a", 1)
	var errs []error
	for v, err := range l.Verify(t.Context()) { // Close in the middle of an iteration
		require.NoError(t, v.Err)
		require.NoError(t, l.Close())
		errs = append(errs, err)
	}
	require.Len(t, errs, 2)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], fs.ErrClosed)
	require.NoError(t, l.Close())
	_, err := get(l, "a")
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, l.WaitIndex(t.Context()), fs.ErrClosed)
	require.ErrorIs(t, l.Pin(t.Context(), []tier.Key{keyOf("a")}, time.Now())[0].Err, fs.ErrClosed)
	require.EqualValues(t, 1, l.Usage().Objects)
}

// A root whose own folders are links is refused: what they lead to is not swept.
func TestLinkInsteadOfOwnFolderIsRefused(t *testing.T) {
	for _, own := range []string{ownDir, tempDir, damagedDir} {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "theirs", "tmp"), 0o700))
		precious := []string{filepath.Join(dir, "theirs", "precious"), filepath.Join(dir, "theirs", "tmp", "precious")}
		for _, p := range precious {
			require.NoError(t, os.WriteFile(p, []byte("p"), 0o600))
		}
		link := filepath.Join(dir, filepath.FromSlash(own))
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
		to, err := filepath.Rel(filepath.Dir(link), filepath.Join(dir, "theirs"))
		require.NoError(t, err)
		require.NoError(t, os.Symlink(to, link))
		_, err = Open(dir, Options{Layout: plain{}, Space: "space", Shared: true})
		require.ErrorIs(t, err, fs.ErrInvalid, own)
		require.ErrorContains(t, err, own)
		for _, p := range precious {
			require.FileExists(t, p)
		}
		entries, err := os.ReadDir(filepath.Join(dir, "theirs"))
		require.NoError(t, err)
		require.Len(t, entries, 2, "nothing was made there")
		require.NoError(t, os.Remove(link))
		require.NoError(t, open(t, dir, Options{Layout: plain{}, Space: "space", Shared: true}).Close())
	}
}

// Nor is anything moved or removed through a link that takes the place of the folder of damaged files later.
func TestLinkInsteadOfDamagedFolder(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{KeepDamaged: 1 << 20})
	mustPut(t, l, "x", 100)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "theirs"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "theirs", "precious"), make([]byte, 2<<20), 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, damagedDir)))
	require.NoError(t, os.Symlink("../theirs", filepath.Join(dir, damagedDir)))
	flip(t, fileOf(t, dir, "x"), 100)
	_, err := get(l, "x")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	require.ErrorContains(t, err, "removing the file failed")
	entries, err := os.ReadDir(filepath.Join(dir, "theirs"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// The folder of damaged files may be removed: it is made again.
func TestDamagedFolderIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{KeepDamaged: 1 << 20})
	mustPut(t, l, "x", 100)
	require.NoError(t, os.Remove(filepath.Join(dir, damagedDir)))
	flip(t, fileOf(t, dir, "x"), 100)
	_, err := get(l, "x")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	entries, err := os.ReadDir(filepath.Join(dir, damagedDir))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// A call that is under way while the folder is opened anew does not answer that the level is closed.
func TestCallsWhileTheFolderIsOpenedAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	block, unblock := gate()
	defer unblock()
	l := open(t, dir, Options{retry: time.Millisecond, fail: func(op operation, p string) error {
		if op == opReadDir {
			<-block // the index waits
		}
		return nil
	}})
	mustPut(t, l, "x", 100)
	r, err := l.enter() // calls that are past it
	require.NoError(t, err)
	defer l.calls.Done()
	waiting, verifying := make(chan error, 1), make(chan error, 1)
	go func() { waiting <- r.wait(t.Context()) }()
	entered := make(chan struct{})
	go func() {
		verifying <- r.explain("", r.verify(t.Context(), func() {
			close(entered)
		}, func(Verified) bool { return true }))
	}()
	<-entered
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Mkdir(dir, 0o700))
	go func() { time.Sleep(10 * time.Millisecond); unblock() }()
	require.Eventually(t, func() bool {
		return errors.Is(stat(l, "x"), tier.ErrNotFound) && l.currentRoot() != r
	}, 10*time.Second, time.Millisecond)

	puts := []tier.Put{{Object: objectOf("y", 1), Bytes: []byte("a")}}
	r.put(t.Context(), puts)
	errs := []error{puts[0].Err, <-waiting, <-verifying}
	_, err = r.stat(t.Context(), keyOf("y"))
	errs = append(errs, r.explain("", err), r.explain("", r.get(t.Context(), &tier.Get{Key: keyOf("x")})),
		r.explain("", r.delete(t.Context(), keyOf("x"))))
	for i, err := range errs {
		require.ErrorIs(t, err, tier.ErrUnavailable, i)
		require.NotErrorIs(t, err, fs.ErrClosed, i)
	}
	require.NoError(t, put(l, objectOf("y", 1), []byte("a")))
}

// A damaged file that can't be taken away counts once, unless it is another one.
func TestDamagedFileThatStaysCountsOnce(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	mustPut(t, l, "x", 100)
	require.NoError(t, l.Close())
	require.NoError(t, os.Truncate(fileOf(t, dir, "x"), 70))
	l = ready(t, dir, Options{ReadOnly: true})
	for range 5 {
		require.ErrorIs(t, stat(l, "x"), tier.ErrCorrupt)
		_, err := get(l, "x")
		require.ErrorIs(t, err, tier.ErrCorrupt)
	}
	require.EqualValues(t, 1, l.Usage().Corrupt)
	require.NoError(t, os.Chtimes(fileOf(t, dir, "x"), time.Unix(1, 0), time.Unix(1, 0)))
	require.ErrorIs(t, stat(l, "x"), tier.ErrCorrupt)
	require.EqualValues(t, 2, l.Usage().Corrupt)
}
