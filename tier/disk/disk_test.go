package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) {
	if s := os.Getenv(killVariable); s != "" {
		killChild(s)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func keyOf(name string) tier.Key { return tier.Key{Space: "space", Name: name} }

func objectOf(name string, size int) tier.Object {
	return tier.Object{Key: keyOf(name), Size: int64(size)}
}

// content is what the object of a name has.
func content(name string, size int) []byte {
	seed := uint64(size)
	for _, c := range []byte(name) {
		seed = seed*31 + uint64(c)
	}
	b := make([]byte, size)
	rng := rand.NewPCG(seed, 1)
	for i := 0; i < len(b); i += 8 {
		v := rng.Uint64()
		for j := i; j < min(i+8, len(b)); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return b
}

// open opens a root, and verifies its index at the end of the test.
func open(t testing.TB, dir string, o Options) *Level {
	t.Helper()
	l, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { closeLevel(t, l) })
	return l
}

func closeLevel(t testing.TB, l *Level) {
	t.Helper()
	check(t, l)
	require.NoError(t, l.Close())
}

// gate is where a hook waits until the test opens it. The test defers open, so that a failure does not hang.
func gate() (wait <-chan struct{}, open func()) {
	c := make(chan struct{})
	return c, sync.OnceFunc(func() { close(c) })
}

// ready opens a root and waits for its index.
func ready(t testing.TB, dir string, o Options) *Level {
	t.Helper()
	l := open(t, dir, o)
	require.NoError(t, l.WaitIndex(t.Context()))
	return l
}

func put(l *Level, o tier.Object, b []byte) error {
	puts := []tier.Put{{Object: o, Bytes: b}}
	l.Put(context.Background(), puts)
	return puts[0].Err
}

func mustPut(t testing.TB, l *Level, name string, size int) tier.Object {
	t.Helper()
	o := objectOf(name, size)
	require.NoError(t, put(l, o, content(name, size)))
	return o
}

func get(l *Level, name string) ([]byte, error) {
	gets := []tier.Get{{Key: keyOf(name)}}
	l.Get(context.Background(), gets)
	return gets[0].Bytes, gets[0].Err
}

func mustGet(t testing.TB, l *Level, name string, size int) {
	t.Helper()
	b, err := get(l, name)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content(name, size), b), "the bytes of %s", name)
}

func stat(l *Level, name string) error {
	return l.Stat(context.Background(), []tier.Key{keyOf(name)})[0].Err
}

// requireMiss expects a miss without damage.
func requireMiss(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, tier.ErrNotFound)
	require.NotErrorIs(t, err, tier.ErrCorrupt)
}

// noFolders is Native without folders, for tests that count what files take.
type noFolders struct{ Native }

func (noFolders) Name() string { return "no folders" }

func (noFolders) Path(k tier.Key) (string, error) {
	p, err := Native{}.Path(k)
	return strings.ReplaceAll(p, "/", "+"), err
}

func (noFolders) ParseHead(path string, file io.ReaderAt, size int64) (Head, error) {
	return Native{}.ParseHead(strings.ReplaceAll(path, "+", "/"), file, size)
}

// flatFileOf is fileOf for that layout.
func flatFileOf(t testing.TB, dir, name string) string {
	t.Helper()
	p, err := noFolders{}.Path(keyOf(name))
	require.NoError(t, err)
	return filepath.Join(dir, p)
}

func fileOf(t testing.TB, dir, name string) string {
	t.Helper()
	p, err := Native{}.Path(keyOf(name))
	require.NoError(t, err)
	return filepath.Join(dir, p)
}

// flip changes a bit of a file.
func flip(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b[0] ^ 1}, at)
	require.NoError(t, err)
}

// files are the regular files of a root that are not the lock.
func files(t testing.TB, dir string) (objects, temporary, aside []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		// an empty folder, which an open level takes away in the background
		if errors.Is(err, fs.ErrNotExist) && p != dir {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		switch parent := filepath.Dir(rel); {
		case rel == lockPath:
		case parent == tempDir:
			temporary = append(temporary, rel)
		case parent == damagedDir:
			aside = append(aside, rel)
		default:
			objects = append(objects, rel)
		}
		return err
	}))
	return objects, temporary, aside
}

// check verifies the invariants of the index, and when nothing is going on and the index is complete, that it
// is the folder.
func check(t testing.TB, l *Level) {
	t.Helper()
	r := l.currentRoot()
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.x
	var used, reserved, removingBytes, objects int64
	removals, emptying := 0, 0
	children := map[id]int32{}
	tenants, waiting, ownLeaves := map[string]tenant{}, map[string]int64{}, map[string]int{}
	uses, kept := map[string]int32{}, map[string]int32{}
	quiet := true
	for at, e := range x.entries {
		require.Equal(t, at, e.id)
		require.Equal(t, at, idOf(e.path()))
		// else it waits for its room
		if e.folder != nil && (e.state != writing || x.subfolders[e.folder.path] == e.folder) {
			require.Same(t, x.subfolders[e.folder.path], e.folder)
			uses[e.folder.path]++
			if e.state != removing {
				kept[e.folder.path]++
			}
		}
		switch e.state {
		case present:
			objects++
			used += e.bytes
			if e.parent != (id{}) {
				children[e.parent]++
			}
		case writing:
			quiet = false
			reserved += e.bytes
			if tenant := x.tenantOf(e); tenant != nil {
				waiting[tenant.name] += e.bytes
			}
		case removing:
			quiet = false
			used += e.bytes
			removingBytes += e.bytes
			removals++
		}
		if e.state != writing && e.tenant != nil {
			u := tenants[e.tenant.name]
			u.bytes += e.bytes
			u.entries++
			if e.state == removing {
				u.removing += e.bytes
			}
			tenants[e.tenant.name] = u
		}
		require.Equal(t, e.state != writing && !e.unindexed, e.value.Live(), "%s: the policy has what is there",
			e.path())
	}
	require.Equal(t, used, x.used)
	require.GreaterOrEqual(t, reserved, x.reserved, "some may be waiting for their room")
	require.Equal(t, removingBytes, x.removingBytes)
	require.Equal(t, removals, x.removing)
	require.Equal(t, objects, x.objects)
	require.Equal(t, children, x.children)
	for name, u := range x.tenants {
		require.Equal(t, tenants[name].bytes, u.bytes, name)
		require.Equal(t, tenants[name].removing, u.removing, name)
		require.GreaterOrEqual(t, waiting[name], u.reserved, "some may be waiting for their room")
		require.Positive(t, u.entries, name)
	}
	for name := range tenants {
		require.Contains(t, x.tenants, name)
	}
	checkSubfolders(t, x, uses, kept, &emptying)
	require.Equal(t, emptying, x.emptying)
	leaves := 0
	for at, e := range x.entries {
		if e.state == present && children[at] == 0 {
			leaves++
			require.True(t, x.leaves.Has(e), e.path())
			if e.tenant != nil {
				ownLeaves[e.tenant.name]++
				require.True(t, e.tenant.leaves.Has(e), e.path())
			}
		} else {
			require.EqualValues(t, -1, e.leaf, e.path())
			require.EqualValues(t, -1, e.tenantLeaf, e.path())
		}
	}
	require.Equal(t, leaves, x.leaves.Len())
	for name, u := range x.tenants {
		require.Equal(t, ownLeaves[name], u.leaves.Len(), name)
	}
	if !quiet {
		return
	}
	require.Empty(t, x.holds, "parents of nothing that is being stored")
	require.Zero(t, x.reserved)
	for name, u := range x.tenants {
		require.Zero(t, u.reserved, name)
		require.Equal(t, tenants[name].entries, u.entries, name)
	}
	if r.o.Shared && r.o.rescan < time.Second {
		return // a search may be under way
	}
	require.Empty(t, r.slots, "open files")
	require.Empty(t, r.heads, "open files of which the head is read")
}

// checkSubfolders verifies the folders of an index. uses and kept are those of its entries.
func checkSubfolders(t testing.TB, x *index, uses, kept map[string]int32, emptying *int) {
	t.Helper()
	paths := slices.Collect(maps.Keys(x.subfolders))
	slices.SortFunc(paths, func(a, b string) int {
		return strings.Count(b, "/") - strings.Count(a, "/")
	}) // the deepest first
	for _, p := range paths {
		known := x.subfolders[p]
		require.Equal(t, p, known.path)
		require.Positive(t, known.uses, p)
		require.Equal(t, uses[p], known.uses, p)
		require.Equal(t, kept[p], known.kept, p)
		if known.kept == 0 {
			*emptying++
		}
		if known.in == nil {
			require.NotContains(t, p, "/")
			continue
		}
		require.Same(t, x.subfolders[filepath.Dir(p)], known.in)
		uses[known.in.path]++
		if known.kept > 0 {
			kept[known.in.path]++
		}
	}
	require.Len(t, uses, len(x.subfolders))
}

func TestPutAndGet(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	require.Equal(t, "disk", l.Name())
	for _, size := range []int{0, 1, 4096, smallBytes, smallBytes + 1, blockBytes - 128, blockBytes, blockBytes + 1,
		3<<20 + 7} {
		name := fmt.Sprint("object ", size)
		o := objectOf(name, size)
		o.Parent, o.Tenant, o.Cost, o.Note = "the parent", "a tenant", 5*time.Millisecond, []byte("a note")
		require.NoError(t, put(l, o, content(name, size)))
		gets := []tier.Get{{Key: o.Key}}
		l.Get(t.Context(), gets)
		require.NoError(t, gets[0].Err)
		require.Equal(t, o, gets[0].Object)
		require.True(t, bytes.Equal(content(name, size), gets[0].Bytes))
		var to bytes.Buffer
		gets = []tier.Get{{Key: o.Key, To: &to}}
		l.Get(t.Context(), gets)
		require.NoError(t, gets[0].Err)
		require.Nil(t, gets[0].Bytes)
		require.True(t, bytes.Equal(content(name, size), to.Bytes()))

		info, err := os.Stat(fileOf(t, dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.Equal(t, o.Tenant, l.Stat(t.Context(), []tier.Key{o.Key})[0].Object.Tenant)
	}
	require.NoError(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && p != dir {
			info, err := d.Info()
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), p)
		}
		return err
	}))
	_, temporary, _ := files(t, dir)
	require.Empty(t, temporary)
	u := l.Usage()
	require.EqualValues(t, 9, u.Objects)
	require.Equal(t, map[string]int64{"a tenant": u.Bytes - 4096*10}, u.Tenants, "folders are nobody's")
}

// A stream is the same object as its bytes are, and what is too long or too short leaves nothing.
func TestStreams(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for _, size := range []int{0, 1, blockBytes, 1<<20 + 3} {
		name := fmt.Sprint("stream ", size)
		puts := []tier.Put{{Object: objectOf(name, size), From: bytes.NewReader(content(name, size))}}
		l.Put(t.Context(), puts)
		require.NoError(t, puts[0].Err)
		mustGet(t, l, name, size)

		b := mustPut(t, l, "bytes", size)
		stream, err := os.ReadFile(fileOf(t, dir, name))
		require.NoError(t, err)
		_ = b
		file := fileOf(t, dir, name)
		path := "s-space/" + filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		o, err := Native{}.ParseHead(path, bytes.NewReader(stream), int64(len(stream)))
		require.NoError(t, err)
		require.EqualValues(t, size, o.Object.Size)
		require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("bytes")})[0])
	}
	objects, _, _ := files(t, dir)
	for _, have := range []int{0, 99, 101, blockBytes} {
		puts := []tier.Put{{Object: objectOf("wrong", 100), From: bytes.NewReader(make([]byte, have))}}
		l.Put(t.Context(), puts)
		require.Error(t, puts[0].Err, have)
		requireMiss(t, stat(l, "wrong"))
		after, temporary, _ := files(t, dir)
		require.Equal(t, objects, after)
		require.Empty(t, temporary)
	}
}

// Files and folders are synced as the options want.
func TestSync(t *testing.T) {
	for _, tt := range []struct {
		o             Options
		file, folders int
	}{
		{Options{}, 0, 0}, {Options{Sync: SyncNever, Shared: true}, 0, 0}, {Options{Shared: true}, 1, 0},
		{Options{Sync: SyncFile}, 1, 0},
		{Options{Sync: SyncFolder}, 1, 3},
	} {
		var file, folders atomic.Int64
		tt.o.fail = func(op operation, p string) error {
			if op == opSync && filepath.Dir(p) == tempDir {
				file.Add(1)
			} else if op == opSync {
				folders.Add(1)
			}
			return nil
		}
		l := open(t, t.TempDir(), tt.o)
		mustPut(t, l, "a", 100)
		require.EqualValues(t, tt.file, file.Load(), "%+v", tt.o.Sync)
		require.EqualValues(t, tt.folders, folders.Load(), "%+v", tt.o.Sync)
	}
}

// A batch may be larger than the level, and name an object twice.
func TestLargeBatchAndTwice(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Capacity: 3 * (4096 + 2*blockBytes)})
	var puts []tier.Put
	for i := range 30 {
		name := fmt.Sprint(i / 2)
		puts = append(puts, tier.Put{Object: objectOf(name, 2*blockBytes), Bytes: content(name, 2*blockBytes)})
	}
	l.Put(t.Context(), puts)
	for i, p := range puts {
		require.NoError(t, p.Err, i)
	}
	require.EqualValues(t, 3, l.Usage().Objects)
}

// An object has its name after its parent, though it is written faster.
func TestParentsHaveTheirNamesFirst(t *testing.T) {
	var mu sync.Mutex
	var order []string
	dir := t.TempDir()
	l := ready(t, dir, Options{fail: func(op operation, p string) error {
		if op == opRename {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, filepath.Join(dir, p))
		}
		return nil
	}})
	var want []string
	var puts []tier.Put
	for i := range 6 {
		name, size := fmt.Sprint(i), 4*blockBytes>>(3*i)
		o := objectOf(name, size)
		if i > 0 {
			o.Parent = fmt.Sprint(i - 1)
		}
		puts = append(puts, tier.Put{Object: o, Bytes: content(name, size)})
		want = append(want, fileOf(t, dir, name))
	}
	l.Put(t.Context(), puts)
	require.Equal(t, want, order)
}

// What was put is there after the process, and before the index is.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	require.NoError(t, err)
	for i := range 50 {
		mustPut(t, l, fmt.Sprint(i), 100*i)
	}
	before := l.Usage()
	closeLevel(t, l)
	l = open(t, dir, Options{})
	for i := range 50 {
		mustGet(t, l, fmt.Sprint(i), 100*i)
	}
	require.NoError(t, l.WaitIndex(t.Context()))
	require.Equal(t, before, l.Usage())
	require.Equal(t, Search{Files: 50, Complete: true}, l.Indexed())
	n := 0
	for o, err := range l.List(t.Context(), "space") {
		require.NoError(t, err)
		require.NotEmpty(t, o.Name)
		n++
	}
	require.Equal(t, 50, n)
	for range l.List(t.Context(), "another space") {
		t.Fatal("an object of another space")
	}
}

// A reader that found damage some time ago does not take away the right file that was stored since, with the
// number of the old one.
func TestNewerFileWithNumberOfDamagedStays(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	path, err := Native{}.Path(keyOf("x"))
	require.NoError(t, err)
	reused := 0
	for range 50 {
		mustPut(t, l, "x", 100)
		require.NoError(t, os.Truncate(filepath.Join(dir, path), 70))
		f, corrupt := l.root.openObject(path)
		require.ErrorIs(t, corrupt, tier.ErrCorrupt)
		_, err := get(l, "x") // another reader takes it away
		require.ErrorIs(t, err, tier.ErrCorrupt)
		mustPut(t, l, "x", 100)
		if now, err := os.Stat(filepath.Join(dir, path)); err == nil && os.SameFile(now, f.info) {
			reused++
		}
		requireMiss(t, l.root.missDamaged(path, f.info, corrupt))
		mustGet(t, l, "x", 100)
		require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("x")})[0])
	}
	t.Logf("%d of 50 files had the number of the damaged one", reused)
}

// TestListPassesAnUnreadableFile: the others are listed, and then there is an error.
func TestListPassesAnUnreadableFile(t *testing.T) {
	bad := ""
	l := ready(t, t.TempDir(), Options{fail: func(op operation, p string) error {
		if op == opOpen && p == bad {
			return syscall.EIO
		}
		return nil
	}})
	for i := range 100 {
		mustPut(t, l, fmt.Sprint("o", i), 100)
	}
	var err error
	bad, err = Native{}.Path(keyOf("o50"))
	require.NoError(t, err)
	var listed []string
	var last error
	for o, err := range l.List(t.Context(), "") {
		if err == nil {
			require.NoError(t, last, "the error is the last")
			listed = append(listed, o.Name)
		}
		last = err
	}
	require.Len(t, listed, 99)
	require.ErrorIs(t, last, tier.ErrUnavailable)
}

// TestStatDoesNotWaitForWrites: every file that may be open is being written.
func TestStatDoesNotWaitForWrites(t *testing.T) {
	writing, goOn := make(chan struct{}, 64), make(chan struct{})
	slow := false
	l := ready(t, t.TempDir(), Options{Workers: 2, fail: func(op operation, _ string) error {
		if slow && op == opWrite {
			writing <- struct{}{}
			<-goOn
		}
		return nil
	}})
	mustPut(t, l, "there", 100)
	slow = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		var puts []tier.Put
		for i := range 8 {
			name := fmt.Sprint("o", i)
			puts = append(puts, tier.Put{Object: objectOf(name, 100), Bytes: content(name, 100)})
		}
		l.Put(context.Background(), puts)
	}()
	for range 2 {
		<-writing
	}
	require.NoError(t, stat(l, "there"))
	require.NoError(t, l.Pin(t.Context(), []tier.Key{keyOf("there")}, time.Now().Add(time.Hour))[0].Err)
	close(goOn)
	<-done
}

// TestUnreadableFilesAreCounted: they are not foreign, so whoever copies the folder does not have all.
func TestUnreadableFilesAreCounted(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 100)
	mustPut(t, l, "b", 100)
	require.NoError(t, l.Close())
	bad, err := Native{}.Path(keyOf("a"))
	require.NoError(t, err)
	l = ready(t, dir, Options{fail: func(op operation, p string) error {
		if op == opOpen && p == bad {
			return fs.ErrPermission
		}
		return nil
	}})
	require.Equal(t, Search{Files: 2, Unreadable: 1, Complete: true}, l.Indexed())
}
