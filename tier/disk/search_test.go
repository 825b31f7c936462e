package disk

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

var searchFiles = flag.Int("files", 500, "objects of 16 KiB that TestIndexOfManyFiles searches")

// TestIndexOfManyFiles: the index has everything, and objects are there before.
func TestIndexOfManyFiles(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	require.NoError(t, err)
	n := *searchFiles
	b := make([]byte, 16<<10)
	for i := 0; i < n; i += 100 {
		var puts []tier.Put
		for j := i; j < min(i+100, n); j++ {
			puts = append(puts, tier.Put{Object: objectOf(fmt.Sprint(j), len(b)), Bytes: b})
		}
		l.Put(t.Context(), puts)
		for _, p := range puts {
			require.NoError(t, p.Err)
		}
	}
	before := l.Usage()
	require.NoError(t, l.Close())

	start := time.Now()
	l = open(t, dir, Options{})
	gets := []tier.Get{{Key: keyOf(fmt.Sprint(n - 1))}}
	l.Get(t.Context(), gets)
	require.NoError(t, gets[0].Err)
	hit, known := time.Since(start), l.Indexed()
	require.NoError(t, l.WaitIndex(t.Context()))
	full := time.Since(start)
	require.Equal(t, before, l.Usage())
	require.EqualValues(t, n, l.Indexed().Files)
	t.Logf("%d files: the first hit after %v (%d files in the index), the full index after %v", n, hit, known.Files,
		full)
}

// flat is a layout with all files in the root.
type flat struct{ plain }

func (flat) Path(k tier.Key) (string, error) { return k.Name + ".file", nil }

func (flat) ParseHead(path string, _ io.ReaderAt, size int64) (Head, error) {
	name, ok := strings.CutSuffix(path, ".file")
	if !ok {
		return Head{}, os.ErrInvalid
	}
	return Head{Object: tier.Object{Key: tier.Key{Name: name}, Size: size}}, nil
}

// A folder with many files is searched by several goroutines, and each file once.
func TestOneFolderWithManyFiles(t *testing.T) {
	dir := t.TempDir()
	const n = 1000
	for i := range n {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".file")), []byte("x"), 0o600))
	}
	var at, most atomic.Int64
	together := make(chan struct{})
	l := ready(t, dir, Options{Layout: flat{}, Space: "space", Shared: true, fail: func(op operation, p string) error {
		if op == opOpen {
			if now := at.Add(1); now == 2 {
				close(together)
			} else if now == 1 {
				<-together // somebody else searches, too
			}
			most.Add(1)
		}
		return nil
	}})
	require.EqualValues(t, n, l.Usage().Objects)
	require.EqualValues(t, n, l.Indexed().Files)
	require.EqualValues(t, n, most.Load())
}

// While the search stands still, everything works: what is there is found, what is put is not put again, and
// what is deleted does not come back.
func TestServedWithoutIndex(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	for i := range 6 {
		mustPut(t, l, fmt.Sprint(i), 100)
	}
	require.NoError(t, l.Close())
	flip(t, fileOf(t, dir, "5"), 20)
	infos := map[string]os.FileInfo{}
	for i := range 5 {
		info, err := os.Stat(fileOf(t, dir, fmt.Sprint(i)))
		require.NoError(t, err)
		infos[fmt.Sprint(i)] = info
	}

	block, unblock := gate()
	defer unblock()
	o := Options{fail: func(op operation, p string) error {
		if op == opReadDir && p != "." && filepath.Dir(p) == "." {
			<-block
		}
		return nil
	}}
	l = open(t, dir, o)
	require.False(t, l.Indexed().Complete)
	mustGet(t, l, "0", 100)
	require.NoError(t, stat(l, "1"))
	requireMiss(t, stat(l, "absent"))
	require.NoError(t, put(l, objectOf("2", 100), content("2", 100)))
	mustPut(t, l, "new", 100)
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("3")})[0])
	requireMiss(t, l.Delete(t.Context(), []tier.Key{keyOf("absent")})[0])
	requireMiss(t, stat(l, "3"))
	_, err := get(l, "5")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	require.NoError(t, l.Pin(t.Context(), []tier.Key{keyOf("4")}, time.Now().Add(time.Hour))[0].Err)
	unblock()
	require.NoError(t, l.WaitIndex(t.Context()))
	require.EqualValues(t, 6-2+1, l.Usage().Objects)
	require.EqualValues(t, 1, l.Usage().Corrupt)
	require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{keyOf("4")})[0], tier.ErrInUse)
	info, err := os.Stat(fileOf(t, dir, "2"))
	require.NoError(t, err)
	require.True(t, os.SameFile(infos["2"], info), "what is there was not written again")
}

// A file that was deleted between its opening by the search and its entry into the index stays gone.
func TestDeletedWhileItIsFound(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 100)
	require.NoError(t, l.Close())
	opened := make(chan struct{})
	held, proceed := gate()
	defer proceed()
	first := make(chan struct{}, 1)
	first <- struct{}{}
	o := Options{fail: func(op operation, p string) error {
		if op == opRead {
			select {
			case <-first:
				close(opened)
				<-held
			default:
			}
		}
		return nil
	}}
	l = open(t, dir, o)
	<-opened
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
	proceed()
	require.NoError(t, l.WaitIndex(t.Context()))
	requireMiss(t, stat(l, "a"))
	require.Zero(t, l.Usage().Objects)
}

// A root that vanishes while it is searched has no complete index when it is there again.
func TestVanishedWhileItIsSearched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root")
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 100)
	require.NoError(t, l.Close())
	block, unblock := gate()
	defer unblock()
	var once sync.Once
	l = open(t, dir, Options{rescan: time.Millisecond, fail: func(op operation, p string) error {
		if op == opReadDir && p == "." {
			once.Do(func() { <-block })
		}
		return nil
	}})
	r := l.currentRoot()
	require.NoError(t, os.Rename(filepath.Join(dir, "s-space"), dir+".objects"))
	require.NoError(t, os.Rename(filepath.Join(dir, ownDir), dir+".own"))
	unblock()
	<-r.indexed
	require.False(t, l.Indexed().Complete)
	require.Error(t, l.Indexed().Err)
	require.NoError(t, os.Rename(dir+".objects", filepath.Join(dir, "s-space")))
	require.NoError(t, os.Rename(dir+".own", filepath.Join(dir, ownDir)))
	mustGet(t, l, "a", 100)
	for !l.Indexed().Complete {
		require.NoError(t, t.Context().Err())
	}
	require.EqualValues(t, 1, l.Usage().Objects)
}

// A file that was opened before the index was complete, and deleted after, does not come back.
func TestLateLookupDoesNotBringBack(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 100)
	r := l.currentRoot()
	p, err := Native{}.Path(keyOf("a"))
	require.NoError(t, err)
	f, err := r.openObject(p)
	require.NoError(t, err)
	defer f.file.Close()
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
	require.Nil(t, r.indexFile(p, f, 0))
	requireMiss(t, stat(l, "a"))
}

// Close does not wait for a search of many files.
func TestCloseEndsTheSearch(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	for i := range 50 {
		mustPut(t, l, fmt.Sprint(i), 1)
	}
	require.NoError(t, l.Close())
	began := make(chan struct{}, 1000)
	var r *root
	opened := make(chan struct{})
	l, err := Open(dir, Options{Workers: 1, fail: func(op operation, _ string) error {
		if op == opRead {
			began <- struct{}{}
			if len(began) > 1 {
				<-opened
				<-r.ctx.Done()
			}
		}
		return nil
	}})
	require.NoError(t, err)
	r = l.currentRoot()
	close(opened)
	<-began
	require.NoError(t, l.Close())
	require.False(t, l.Indexed().Complete)
}
