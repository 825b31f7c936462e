package disk

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
	t.Logf("%d files: the first hit after %v (%d files in the index), the full index after %v", n, hit, known.Files, full)
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

	block := make(chan struct{})
	o := Options{fail: func(op operation, p string) error {
		if op == opList && p != "." && filepath.Dir(p) == "." {
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
	require.NoError(t, l.Promise(t.Context(), []tier.Key{keyOf("4")}, time.Now().Add(time.Hour))[0].Err)
	close(block)
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
	opened, proceed := make(chan struct{}), make(chan struct{})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	o := Options{fail: func(op operation, p string) error {
		if op == opRead {
			select {
			case <-first:
				close(opened)
				<-proceed
			default:
			}
		}
		return nil
	}}
	l = open(t, dir, o)
	<-opened
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
	close(proceed)
	require.NoError(t, l.WaitIndex(t.Context()))
	requireMiss(t, stat(l, "a"))
	require.Zero(t, l.Usage().Objects)
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
