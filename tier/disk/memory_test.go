package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// What [Options].Capacity says that the index has for a file or folder, in bytes.
const (
	mostMemory      = 400
	mostMemoryNames = 600 // if the names of files are those of objects
)

// longest has the longest texts that an object can have.
func longest(i int) tier.Object {
	text := func(what string, n int) string {
		s := fmt.Sprintf("%s %d ", what, i)
		return s + strings.Repeat("x", n-len(s))
	}
	return tier.Object{
		Key:    tier.Key{Space: text("space", tier.MaxSpace), Name: text("name", tier.MaxName)},
		Parent: text("parent", tier.MaxName), Tenant: text("tenant", tier.MaxTenant),
		Note: []byte(text("note", tier.MaxNote)),
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestDiskIndexMemory: what the index has for an object has a bound, whatever the texts of the object, and so
// has the number of objects.
func TestDiskIndexMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		layout Layout
		most   int64
		change func(i int, o *tier.Object)
	}{
		"one space": {Native{}, mostMemory, func(_ int, o *tier.Object) { o.Space = "space" }},
		// Each object has two folders of its own.
		"a space each": {Native{}, mostMemory, func(int, *tier.Object) {}},
		"long names": {LMCache{}, mostMemoryNames, func(i int, o *tier.Object) {
			o.Space, o.Parent = "space", fmt.Sprint(o.Parent[:240], i)
			o.Name = o.Name[:240] + fmt.Sprint(i)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := 40000
			if raceEnabled {
				n = 8000
			}
			r := &root{o: Options{Layout: tt.layout}, x: newIndex(4096)}
			add := func(from, to int) {
				for i := from; i < to; i++ {
					o := longest(i)
					tt.change(i, &o)
					p, err := r.pathOf(o.Key)
					require.NoError(t, err)
					e := r.newEntry(p, o)
					e.bytes = 8192
					r.x.insert(e)
					r.x.makePresent(e)
				}
			}
			add(0, maxTenants+1) // so many tenants have their names in memory, and the policy has what does not grow
			before, first := heap(), r.x.items()
			add(maxTenants+1, n)
			each := (heap() - before) / int64(r.x.items()-first)
			t.Logf("%d files and folders: %d bytes for each", r.x.items(), each)
			if !raceEnabled {
				require.Less(t, each, tt.most)
			}
			require.Len(t, r.x.tenants, maxTenants)
			runtime.KeepAlive(r)
		})
	}

	// What the file says is read from the file.
	dir := t.TempDir()
	l := ready(t, dir, Options{items: 100})
	for i := range 300 {
		o := longest(i)
		if i%2 > 0 {
			o.Space = "space"
		}
		require.NoError(t, put(l, o, nil))
		r := l.currentRoot()
		require.LessOrEqual(t, r.x.items(), 100)
		f := l.Stat(t.Context(), []tier.Key{o.Key})[0]
		require.NoError(t, f.Err)
		require.Equal(t, o, f.Object)
	}
	u := l.Usage()
	require.Positive(t, u.Evicted)
	require.Equal(t, int64(300), u.Objects+u.Evicted)
	listed := 0
	for o, err := range l.List(t.Context(), "space") {
		require.NoError(t, err)
		require.Len(t, o.Note, tier.MaxNote)
		listed++
	}
	require.Positive(t, listed)
	closeLevel(t, l)
	l = ready(t, dir, Options{items: 50})
	for l.Usage().Objects+int64(len(l.currentRoot().x.subfolders)) > 50 { // what is too much goes
		require.NoError(t, t.Context().Err())
	}
	checkFolders(t, l)
}

// checkFolders expects that the files and folders of a root are those of its index, and take what Usage says.
func checkFolders(t testing.TB, l *Level) {
	t.Helper()
	check(t, l)
	r := l.currentRoot()
	var files, folders, bytes int64
	require.NoError(t, filepath.WalkDir(r.folder.path, func(p string, d os.DirEntry, err error) error {
		switch {
		case err != nil || p == r.folder.path:
		case d.Name() == ownDir:
			return filepath.SkipDir
		case d.IsDir():
			folders++
			bytes += r.x.block
		default:
			info, err := d.Info()
			require.NoError(t, err)
			files++
			bytes += r.x.rounded(info.Size())
		}
		return err
	}))
	u := l.Usage()
	require.Equal(t, u.Objects, files)
	require.EqualValues(t, len(r.x.subfolders), folders)
	require.Equal(t, u.Bytes, bytes)
}

// TestDiskFolders: folders count, and go with the last object in them.
func TestDiskFolders(t *testing.T) {
	dir := t.TempDir()
	const capacity = 64 * 4096
	l := ready(t, dir, Options{Capacity: capacity})
	small := func(i int) tier.Object {
		return tier.Object{Key: tier.Key{Space: fmt.Sprint("space", i), Name: "n"}, Size: 1}
	}
	for i := range 300 {
		require.NoError(t, put(l, small(i), []byte{1}))
		require.LessOrEqual(t, l.Usage().Bytes, int64(capacity))
	}
	checkFolders(t, l)
	require.EqualValues(t, 21, l.Usage().Objects, "each takes three blocks")
	require.NoError(t, put(l, objectOf("large", 61*4096-64), content("large", 61*4096-64)))
	require.EqualValues(t, 1, l.Usage().Objects)
	checkFolders(t, l)
	require.ErrorIs(t, put(l, objectOf("larger", 62*4096), content("larger", 62*4096)), tier.ErrTooLarge)

	// Damage and Delete leave none either.
	flip(t, fileOf(t, dir, "large"), 5000)
	_, err := get(l, "large")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	checkFolders(t, l)
	require.NoError(t, put(l, small(1), []byte{1}))
	require.NoError(t, l.Delete(t.Context(), []tier.Key{small(1).Key})[0])
	checkFolders(t, l)
	require.Zero(t, l.Usage().Bytes)

	// What a killed process left empty goes when the root is opened; a folder of somebody else's with
	// something in it stays.
	require.NoError(t, l.Close())
	for _, p := range []string{"s-a/00", "s-b/11", "s-c", "theirs/a"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, p), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "theirs", "file"), nil, 0o600))
	ready(t, dir, Options{Capacity: capacity})
	require.NoDirExists(t, filepath.Join(dir, "s-a"))
	require.NoDirExists(t, filepath.Join(dir, "s-b"))
	require.NoDirExists(t, filepath.Join(dir, "s-c"))
	require.FileExists(t, filepath.Join(dir, "theirs", "file"))
}

// A folder that goes at any point of a Put is made again.
func TestFoldersGoWhilePutsCome(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Capacity: 3 * 3 * 4096})
	done := make(chan struct{})
	var failed error
	go func() { // the same few folders again and again
		defer close(done)
		for i := range 500 {
			o := objectOf(fmt.Sprint("n", i%7), 1)
			o.Space = fmt.Sprint(i % 5)
			if err := put(l, o, []byte{1}); err != nil && !errors.Is(err, tier.ErrPending) &&
				!errors.Is(err, tier.ErrFull) {
				failed = err
			}
		}
	}()
	for i := range 500 {
		o := objectOf(fmt.Sprint("n", i%7), 1)
		o.Space = fmt.Sprint(i % 5)
		_ = put(l, o, []byte{1})
		if i%3 == 0 {
			_ = l.Delete(t.Context(), []tier.Key{o.Key})
		}
	}
	<-done
	require.NoError(t, failed)
	checkFolders(t, l)
}

// An empty folder of a shared tree stays as long as a stock writer may be about to write there, and goes
// then.
func TestEmptyFoldersOfASharedTree(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	o := sharedOptions(&now)
	o.rescan = time.Millisecond
	l := ready(t, dir, o)
	require.NoError(t, put(l, objectOf("a", 1), []byte("a")))
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
	require.NoError(t, os.Mkdir(filepath.Join(dir, "young"), 0o700))
	long := now.Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a"), long, long))
	for _, err := os.Stat(filepath.Join(dir, "a")); err == nil; _, err = os.Stat(filepath.Join(dir, "a")) {
		require.NoError(t, t.Context().Err())
	}
	require.DirExists(t, filepath.Join(dir, "young"))
	require.NoError(t, put(l, objectOf("a", 1), []byte("a")))
}

// TestOthersEmptyFoldersStay: of a shared tree this level removes only folders that it has emptied.
func TestOthersEmptyFoldersStay(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for _, p := range []string{"mount-point", "someone/elses/empty"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, p), 0o700))
	}
	now = now.Add(2 * time.Hour) // they are old
	o := sharedOptions(&now)
	o.rescan = time.Millisecond
	l := ready(t, dir, o)
	require.NoError(t, put(l, objectOf("a", 1), []byte("a")))
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
	long := now.Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a"), long, long))
	for _, err := os.Stat(filepath.Join(dir, "a")); err == nil; _, err = os.Stat(filepath.Join(dir, "a")) {
		require.NoError(t, t.Context().Err())
	}
	for _, p := range []string{"mount-point", "someone/elses/empty"} {
		require.DirExists(t, filepath.Join(dir, p))
	}
}

// TestASharedTreeWithoutCapacityIsNotBounded: nobody has asked that others' files go.
func TestASharedTreeWithoutCapacityIsNotBounded(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	o := sharedOptions(&now)
	l := ready(t, dir, o)
	require.Zero(t, l.root.maxItems)
	require.NoError(t, l.Close())
	o.Capacity = 1 << 20
	l = ready(t, dir, o)
	require.NotZero(t, l.root.maxItems)
}

// TestFoldersOfFailedPuts: a Put that fails behind making its folder leaves none.
func TestFoldersOfFailedPuts(t *testing.T) {
	for _, shared := range []bool{false, true} {
		dir := t.TempDir()
		failing := false
		l := ready(t, dir, Options{Shared: shared, Sync: SyncFolder, MinAge: 1, rescan: time.Hour,
			fail: func(op operation, p string) error {
				if failing && op == opSync && !strings.HasPrefix(p, ownDir) {
					return syscall.EIO
				}
				return nil
			}})
		folders := func() (all []string) {
			require.NoError(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
				if d.IsDir() && !strings.Contains(p, ownDir) && p != dir {
					all = append(all, p)
				}
				return err
			}))
			return all
		}
		failing = true
		for i := range 20 {
			require.Error(t, put(l, objectOf(fmt.Sprint("o", i), 10), content(fmt.Sprint("o", i), 10)))
		}
		if shared {
			require.NotEmpty(t, folders())
			for range 8 { // a folder around one that goes is young again
				require.NoError(t, l.root.searchOnce())
			}
		}
		require.Empty(t, folders())
		failing = false
		mustPut(t, l, "o1", 10)
		checkFolders(t, l)
	}
}
