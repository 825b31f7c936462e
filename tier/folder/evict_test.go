package folder

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/internal/tree"
)

// testObject is the object of a number: the same for everybody. Number 6, 13 and so on have several blocks.
func testObject(i int) (tier.Object, []byte) {
	sizes := []int{0, 1, 300, 4096, 70_000, 200_000, 600 << 10}
	b := make([]byte, sizes[i%len(sizes)])
	rng := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
	_, _ = rng.Read(b)
	o := tier.Object{Key: tier.Key{Space: "s", Name: fmt.Sprint("object ", i)}, Size: int64(len(b)), Note: []byte("note")}
	return o, b
}

func putOne(l *Level, o tier.Object, b []byte) error {
	puts := []tier.Put{{Object: o, Bytes: b}}
	l.Put(context.Background(), puts)
	return puts[0].Err
}

func getOne(l *Level, k tier.Key) ([]byte, error) {
	gets := []tier.Get{{Key: k}}
	l.Get(context.Background(), gets)
	return gets[0].Bytes, gets[0].Err
}

func pathIn(t testing.TB, l *Level, dir string, k tier.Key) string {
	t.Helper()
	p, err := l.o.Layout.Path(k)
	require.NoError(t, err)
	return filepath.Join(dir, p)
}

// setAge makes a file older than it is.
func setAge(t testing.TB, l *Level, dir string, k tier.Key, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	require.NoError(t, os.Chtimes(pathIn(t, l, dir, k), at, at))
}

// temporary returns the names of temporary files.
func temporary(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, tree.TempDir))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// leaving returns how many files are below .ringcache/leaving.
func leaving(t testing.TB, dir string) (n int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, tree.LeavingDir), func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	}))
	return n
}

// still opens a level whose own goroutine does nothing, and that waits for nobody.
func still(t testing.TB, dir string, o Options) *Level {
	t.Helper()
	o.interval = 1000 * time.Hour
	if o.grace == 0 {
		o.grace = 1
	}
	return openAt(t, dir, o)
}

// TestEviction: what is old goes, the oldest first, until there is room. What was put or read lately stays.
func TestEviction(t *testing.T) {
	dir := t.TempDir()
	l := still(t, dir, Options{Capacity: 1 << 20, MinAge: time.Hour})
	const n = 21 // of which 7 have 2.6 MB
	for i := range n {
		o, b := testObject(i)
		require.NoError(t, putOne(l, o, b))
		setAge(t, l, dir, o.Key, time.Duration(n-i)*2*time.Hour)
	}
	read, b := testObject(6)
	got, err := getOne(l, read.Key)
	require.NoError(t, err)
	require.Equal(t, b, got)
	require.Eventually(t, func() bool { return l.inFiles.Load() == 0 }, time.Minute, time.Millisecond, "it is touched")
	young, _ := testObject(5)
	setAge(t, l, dir, young.Key, 59*time.Minute)

	require.NoError(t, l.cleanUp(t.Context()))
	var bytes int64
	var gone, there []int
	for i := range n {
		o, _ := testObject(i)
		if err := l.Stat(t.Context(), []tier.Key{o.Key})[0].Err; err == nil {
			bytes += o.Size
			there = append(there, i)
		} else {
			require.ErrorIs(t, err, tier.ErrNotFound)
			gone = append(gone, i)
		}
	}
	require.Contains(t, there, 6, "it was read")
	require.Contains(t, there, 5, "it is young")
	require.LessOrEqual(t, bytes, int64(1<<20))
	require.Equal(t, int64(len(gone)), l.Usage().Evicted)
	for _, g := range gone {
		for _, s := range there {
			require.True(t, g < s || s == 5 || s == 6, "%d went, and %d, which is older, stayed", g, s)
		}
	}
	require.Zero(t, leaving(t, dir))
	require.Empty(t, temporary(t, dir))
}

// TestYoungObjectsStay: a root above its capacity keeps what is young.
func TestYoungObjectsStay(t *testing.T) {
	l := still(t, t.TempDir(), Options{Capacity: 1 << 20})
	for i := range 28 {
		o, b := testObject(i)
		require.NoError(t, putOne(l, o, b))
	}
	require.NoError(t, l.cleanUp(t.Context()))
	for i := range 28 {
		o, _ := testObject(i)
		_, err := getOne(l, o.Key)
		require.NoError(t, err)
	}
	require.Zero(t, l.Usage().Evicted)
}

// TestRenewedWhileLeaving: an object that another host renews between the two steps of its eviction stays.
func TestRenewedWhileLeaving(t *testing.T) {
	dir := t.TempDir()
	l := still(t, dir, Options{MinAge: time.Hour})
	o, b := testObject(3)
	require.NoError(t, putOne(l, o, b))
	setAge(t, l, dir, o.Key, 2*time.Hour)
	all, err := l.search(t.Context())
	require.NoError(t, err)
	f, err := os.Open(pathIn(t, l, dir, o.Key)) // another host, with what its cache has
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, l.moveAway(t.Context(), all, 0))
	require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{o.Key})[0].Err, tier.ErrNotFound)
	require.Equal(t, 1, leaving(t, dir))
	require.NoError(t, tree.Touch(f))
	gone, err := l.endLeaving(t.Context())
	require.NoError(t, err)
	require.Zero(t, gone)
	got, err := getOne(l, o.Key)
	require.NoError(t, err)
	require.Equal(t, b, got)
	require.Zero(t, leaving(t, dir))

	// Put writes anew what has just been moved away.
	setAge(t, l, dir, o.Key, 2*time.Hour)
	all, err = l.search(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.moveAway(t.Context(), all, 0))
	require.NoError(t, putOne(l, o, b))
	gone, err = l.endLeaving(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), gone)
	got, err = getOne(l, o.Key)
	require.NoError(t, err)
	require.Equal(t, b, got)
}

// TestPutRenews: Put of what is there makes it young, so that it stays for MinAge from then on.
func TestPutRenews(t *testing.T) {
	dir := t.TempDir()
	l := still(t, dir, Options{MinAge: time.Hour})
	o, b := testObject(3)
	require.NoError(t, putOne(l, o, b))
	for _, age := range []time.Duration{31 * time.Minute, 100 * time.Hour} {
		setAge(t, l, dir, o.Key, age)
		require.NoError(t, putOne(l, o, b))
		info, err := os.Stat(pathIn(t, l, dir, o.Key))
		require.NoError(t, err)
		require.Less(t, time.Since(info.ModTime()), 5*time.Minute)
	}
}

// TestLease: one level at a time has it. That of a dead level is free when it was the same for a while, and that of one
// which renews it never is.
func TestLease(t *testing.T) {
	dir := t.TempDir()
	o := Options{lease: 300 * time.Millisecond}
	a, b := still(t, dir, o), still(t, dir, o)
	take := func(l *Level) bool {
		taken, err := l.evictor.lease.take(t.Context())
		require.NoError(t, err)
		return taken
	}
	require.True(t, take(a))
	require.False(t, take(b))
	require.NoError(t, a.evictor.lease.release(t.Context()))
	require.True(t, take(b))
	require.False(t, take(a))
	for begin := time.Now(); time.Since(begin) < 3*o.lease; time.Sleep(10 * time.Millisecond) {
		require.NoError(t, b.evictor.lease.renew(t.Context()))
		require.False(t, take(a), "it is renewed")
	}
	// b is dead from here on.
	require.Eventually(t, func() bool { return take(a) }, time.Minute, 10*time.Millisecond)
	b.evictor.lease.since = time.Now().Add(-o.lease)
	require.ErrorIs(t, b.evictor.lease.renew(t.Context()), errLeaseLost)
	require.NoError(t, b.evictor.lease.release(t.Context()), "it is not its own any more")
	require.False(t, take(b))
	require.Empty(t, temporary(t, dir))

	// Whoever takes away a lease that was taken over by then puts it back.
	before, err := os.ReadFile(filepath.Join(dir, leasePath))
	require.NoError(t, err)
	require.NoError(t, b.file(t.Context(), func(tr *tree.Tree) error { return b.takeAway(tr, "an older one") }))
	after, err := os.ReadFile(filepath.Join(dir, leasePath))
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Empty(t, temporary(t, dir))
}

// TestSearchedOnce: a level does not search a root that another level has just searched.
func TestSearchedOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := still(t, dir, Options{Capacity: 1}), still(t, dir, Options{Capacity: 1})
	require.NoError(t, a.cleanUp(t.Context()))
	first, err := os.ReadFile(filepath.Join(dir, reportPath))
	require.NoError(t, err)
	require.NoError(t, b.cleanUp(t.Context()))
	second, err := os.ReadFile(filepath.Join(dir, reportPath))
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.NoError(t, b.cleanUp(t.Context()), "nobody has searched since")
	third, err := os.ReadFile(filepath.Join(dir, reportPath))
	require.NoError(t, err)
	require.NotEqual(t, first, third)
}

// TestLeftovers: temporary files of dead processes go when they are old, those of living ones stay, and so do files that
// a client of NFS has removed.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	l := still(t, dir, Options{Capacity: 1 << 20, MinAge: time.Hour})
	o, b := testObject(3)
	require.NoError(t, putOne(l, o, b))
	shard := filepath.Dir(pathIn(t, l, dir, o.Key))
	tmp := filepath.Join(dir, tree.TempDir)
	old := time.Now().Add(-2 * time.Hour)
	for _, p := range []string{filepath.Join(tmp, "dead-1"), filepath.Join(tmp, ".nfs0001"), filepath.Join(shard, ".nfs0002"),
		filepath.Join(dir, "other")} {
		require.NoError(t, os.WriteFile(p, []byte("x"), 0o600))
		require.NoError(t, os.Chtimes(p, old, old))
	}
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "living-1"), nil, 0o600))
	require.NoError(t, l.cleanUp(t.Context()))
	require.ElementsMatch(t, []string{".nfs0001", "living-1"}, temporary(t, dir))
	require.FileExists(t, filepath.Join(shard, ".nfs0002"))
	require.FileExists(t, filepath.Join(dir, "other"))
	for got, err := range l.List(t.Context(), "") {
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
}

// TestFull: a file system without room is answered as that, and a search makes room.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	l := still(t, dir, Options{MinAge: time.Hour})
	for i := range 21 {
		o, b := testObject(i)
		require.NoError(t, putOne(l, o, b))
		setAge(t, l, dir, o.Key, 2*time.Hour)
	}
	require.NoError(t, l.cleanUp(t.Context()))
	require.Zero(t, l.Usage().Evicted, "no Capacity, and room")
	l.evictor.isFull.Store(true)
	require.NoError(t, l.cleanUp(t.Context()))
	require.Positive(t, l.Usage().Evicted)
	require.False(t, l.evictor.isFull.Load())
}

// TestRoots: what can't be a root is refused, with what to do.
func TestRoots(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(t.Context(), filepath.Join(dir, "absent"), Options{})
	require.ErrorIs(t, err, os.ErrInvalid)
	require.ErrorContains(t, err, "mount it, or make the folder")

	shared := filepath.Join(dir, "shared")
	require.NoError(t, os.Mkdir(shared, 0o700))
	require.NoError(t, Check(t.Context(), shared, Options{}))
	require.NoDirExists(t, filepath.Join(shared, tree.OwnDir), "Check changes nothing")
	l := openAt(t, shared, Options{})
	require.NoError(t, Check(t.Context(), shared, Options{}))
	layout, space, err := Identify(shared)
	require.NoError(t, err)
	require.Equal(t, "native", layout)
	require.Empty(t, space)
	_, err = Open(t.Context(), shared, Options{Space: "s"})
	require.ErrorIs(t, err, os.ErrInvalid)
	require.ErrorIs(t, Check(t.Context(), shared, Options{Space: "s"}), os.ErrInvalid)
	_, err = Open(t.Context(), shared, Options{Layout: disk.LMCache{}, Space: "s"})
	require.ErrorIs(t, err, os.ErrInvalid)
	_, err = disk.Open(shared, disk.Options{})
	require.ErrorContains(t, err, "folder:")
	_, err = disk.Open(shared, disk.Options{Shared: true})
	require.ErrorContains(t, err, "folder:")

	alone := filepath.Join(dir, "alone")
	d, err := disk.Open(alone, disk.Options{})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	_, err = Open(t.Context(), alone, Options{})
	require.ErrorContains(t, err, "one process at a time")

	used := filepath.Join(dir, "used")
	require.NoError(t, os.MkdirAll(filepath.Join(used, "photos"), 0o700))
	_, err = Open(t.Context(), used, Options{})
	require.ErrorIs(t, err, os.ErrExist)
	_, _, err = Identify(used)
	require.ErrorIs(t, err, os.ErrNotExist)

	// A folder that was removed is away, and is not made again: its mount may be missing.
	o, b := testObject(3)
	require.NoError(t, putOne(l, o, b))
	require.NoError(t, os.Rename(shared, shared+".moved"))
	require.NoError(t, os.Mkdir(shared, 0o700))
	require.ErrorIs(t, l.Ping(t.Context()), tier.ErrUnavailable)
	require.ErrorIs(t, putOne(l, o, b), tier.ErrUnavailable)
	require.NoError(t, os.Remove(shared))
	require.NoError(t, os.Rename(shared+".moved", shared))
	require.Eventually(t, func() bool { return putOne(l, o, b) == nil }, time.Minute, time.Millisecond)
	require.NoDirExists(t, filepath.Join(shared, "photos"))
}

// TestLMCacheFiles: files of LMCache's FS connector are found, and ours have its form.
func TestLMCacheFiles(t *testing.T) {
	dir := t.TempDir()
	note := make([]byte, 28) // a RemoteMetadata of 16 bytes, as in the golden test of tier/disk
	note[0] = 16
	theirs := filepath.Join(dir, "model@1@0@abc.data")
	require.NoError(t, os.WriteFile(theirs, []byte("raw bytes of a connector without save_chunk_meta"), 0o600))
	l := still(t, dir, Options{Layout: disk.LMCache{}, Space: "lmcache"})
	require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{{Space: "lmcache", Name: "model@1@0@abc"}})[0].Err, tier.ErrNotFound)
	require.FileExists(t, theirs, "another program's file stays")
	b := bytes.Repeat([]byte("kv"), 8)
	o := tier.Object{Key: tier.Key{Space: "lmcache", Name: "model@1@0@def"}, Size: int64(len(b)), Note: note}
	require.NoError(t, putOne(l, o, b))
	raw, err := os.ReadFile(filepath.Join(dir, "model@1@0@def.data"))
	require.NoError(t, err)
	require.Equal(t, append(bytes.Clone(o.Note), b...), raw)
	other := still(t, dir, Options{Layout: disk.LMCache{}, Space: "lmcache"})
	got, err := getOne(other, o.Key)
	require.NoError(t, err)
	require.Equal(t, b, got)
}
