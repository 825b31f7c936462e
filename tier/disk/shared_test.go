package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// plain is a layout without heads: a file is the bytes, as other programs would write them.
type plain struct{}

func (plain) Name() string { return "plain" }

func (plain) Path(k tier.Key) (string, error) {
	if strings.ContainsAny(k.Name, "/.") {
		return "", fs.ErrInvalid
	}
	return k.Name + "/file", nil
}

func (plain) AppendHead(dst []byte, _ tier.Object, _ uint32) ([]byte, error) { return dst, nil }

func (plain) ParseHead(path string, file io.ReaderAt, size int64) (Head, error) {
	name, rest, _ := strings.Cut(path, "/")
	if rest != "file" {
		return Head{}, ErrPath
	}
	var b [1]byte
	if n, err := file.ReadAt(b[:], 0); n == 1 && b[0] == '!' || size == 0 {
		return Head{}, errors.Join(tier.ErrCorrupt, err)
	}
	return Head{Object: tier.Object{Key: tier.Key{Name: name}, Size: size}}, nil
}

func sharedOptions(now *time.Time) Options {
	return Options{Layout: plain{}, Space: "space", Shared: true, MinAge: time.Hour, now: func() time.Time {
		return *now
	}}
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name, "file"), []byte(text), 0o600))
}

// Files of others are found, at any time, and what they change or remove is seen.
func TestSharedTree(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "before", "old")
	now := time.Now()
	l := ready(t, dir, sharedOptions(&now))
	is := func(name, want string) {
		t.Helper()
		b, err := get(l, name)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
		f := l.Stat(t.Context(), []tier.Key{keyOf(name)})[0]
		require.NoError(t, f.Err)
		require.EqualValues(t, len(want), f.Object.Size)
	}
	is("before", "old")
	write(t, dir, "after", "new")
	is("after", "new")
	write(t, dir, "after", "changed")
	is("after", "changed")
	write(t, dir, "stat first", "x")
	require.NoError(t, stat(l, "stat first"))
	write(t, dir, "stat first", "another size")
	require.EqualValues(t, 12, l.Stat(t.Context(), []tier.Key{keyOf("stat first")})[0].Object.Size)
	require.EqualValues(t, 3, l.Usage().Objects)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "before")))
	requireMiss(t, stat(l, "before"))
	_, err := get(l, "before")
	requireMiss(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "after")))
	requireMiss(t, l.Delete(t.Context(), []tier.Key{keyOf("after")})[0])
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "stat first")))
	puts := []tier.Put{{Object: objectOf("stat first", 2), Bytes: []byte("my")}}
	l.Put(t.Context(), puts)
	require.NoError(t, puts[0].Err)
	is("stat first", "my")
	write(t, dir, "theirs", "theirs")
	require.NoError(t, put(l, objectOf("theirs", 6), []byte("theirs")))
	is("theirs", "theirs")
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("theirs")})[0])
	_, err = os.Stat(filepath.Join(dir, "theirs", "file"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = os.Stat(filepath.Join(dir, "theirs"))
	require.NoError(t, err, "a stock writer may be about to write there")
}

// A file that somebody is writing is a miss, and stays; when it is old it is damage.
func TestSharedIncompleteFiles(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	write(t, dir, "half", "!")
	l := ready(t, dir, sharedOptions(&now))
	write(t, dir, "later", "!")
	for _, name := range []string{"half", "later"} {
		_, err := get(l, name)
		requireMiss(t, err)
		requireMiss(t, stat(l, name))
		_, err = os.Stat(filepath.Join(dir, name, "file"))
		require.NoError(t, err)
	}
	require.Zero(t, l.Usage().Corrupt)
	write(t, dir, "half", "whole")
	b, err := get(l, "half")
	require.NoError(t, err)
	require.Equal(t, "whole", string(b))
	now = now.Add(61 * time.Minute)
	_, err = get(l, "later")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	_, err = os.Stat(filepath.Join(dir, "later", "file"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualValues(t, 1, l.Usage().Corrupt)
}

// A file without a checksum that changes while it is read is a miss.
func TestSharedFileChangesWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	l := ready(t, dir, sharedOptions(&now))
	write(t, dir, "a", strings.Repeat("a", 2*blockBytes))
	old := now.Add(-time.Minute)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a", "file"), old, old))
	gets := []tier.Get{{Key: keyOf("a"), To: writerFunc(func(p []byte) (int, error) {
		f, err := os.OpenFile(filepath.Join(dir, "a", "file"), os.O_WRONLY, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte("b"), 2*blockBytes-1)
		return len(p), err
	})}}
	l.Get(context.Background(), gets)
	requireMiss(t, gets[0].Err)
}

// A damaged file that somebody replaces while it is read: the new one stays.
func TestSharedFileIsReplacedWhileItIsRead(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Shared: true, MinAge: 1})
	mustPut(t, l, "a", 2*blockBytes)
	path := fileOf(t, dir, "a")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	flip(t, path, 2*blockBytes)
	gets := []tier.Get{{Key: keyOf("a"), To: writerFunc(func(p []byte) (int, error) {
		require.NoError(t, os.WriteFile(path+".new", good, 0o600))
		return len(p), os.Rename(path+".new", path)
	})}}
	l.Get(context.Background(), gets)
	requireMiss(t, gets[0].Err)
	mustGet(t, l, "a", 2*blockBytes)
	require.Zero(t, l.Usage().Corrupt)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Files that others wrote count, and go for room when they are old, unless somebody writes or looks at them.
func TestSharedCapacity(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	o := sharedOptions(&now)
	o.Capacity = 8 * 4096
	o.rescan = time.Millisecond
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		write(t, dir, name, name)
	}
	l := ready(t, dir, o)
	require.EqualValues(t, 12*4096, l.Usage().Bytes, "all are young")
	require.ErrorIs(t, put(l, objectOf("mine", 1), []byte("m")), tier.ErrFull)
	require.NoError(t, os.Remove(filepath.Join(dir, "a", "file")))
	for l.Usage().Objects > 5 { // a search notices
		require.NoError(t, t.Context().Err())
	}
	write(t, dir, "g", "g")
	for l.Usage().Objects < 6 {
		require.NoError(t, t.Context().Err())
	}
	require.Zero(t, l.Usage().Evicted)
}

// A search goes over files that this process is writing: the race detector looks at what both touch.
func TestSearchBesidePuts(t *testing.T) {
	now := time.Now()
	o := sharedOptions(&now)
	o.rescan, o.Sync = time.Microsecond, SyncFolder
	o.fail = func(op operation, _ string) error {
		if op == opSync { // the file is there, and its entry is not published yet
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}
	l := ready(t, t.TempDir(), o)
	const n = 200
	for i := range n {
		require.NoError(t, put(l, objectOf(fmt.Sprint(i), 1), []byte("o")))
	}
	require.EqualValues(t, n, l.Usage().Objects)
}

// A file that was written again since the index saw it is not taken away for room.
func TestSharedFileWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	o := sharedOptions(&now)
	o.Capacity = 4 * 4096
	write(t, dir, "a", "a")
	write(t, dir, "b", "b")
	l := ready(t, dir, o)
	now = now.Add(2 * time.Hour)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name, "file"), now, now))
	}
	require.ErrorIs(t, put(l, objectOf("c", 1), []byte("c")), tier.ErrFull)
	for _, name := range []string{"a", "b"} {
		_, err := os.Stat(filepath.Join(dir, name, "file"))
		require.NoError(t, err)
	}
	now = now.Add(2 * time.Hour)
	require.NoError(t, put(l, objectOf("c", 1), []byte("c")))
}

// A folder of one file goes with it, if nobody else writes to the tree.
func TestEmptyFoldersGo(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: plain{}, Space: "space", Capacity: 6 * 4096})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		require.NoError(t, put(l, objectOf(name, 1), []byte("x")))
	}
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("e")})[0])
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "two objects and .ringcache")
}

// folded is a layout that breaks its promise: two keys have one file.
type folded struct{ Native }

func (folded) Path(k tier.Key) (string, error) {
	k.Name = strings.ToLower(k.Name)
	return Native{}.Path(k)
}

// Of two keys with one file, the one whose object is not there is a miss, and is not stored.
func TestFileOfAnotherKeyIsAStranger(t *testing.T) {
	for _, shared := range []bool{false, true} {
		l := ready(t, t.TempDir(), Options{Layout: folded{}, Shared: shared})
		mustPut(t, l, "a", 100)
		_, err := get(l, "A")
		requireMiss(t, err)
		requireMiss(t, stat(l, "A"))
		requireMiss(t, l.Pin(t.Context(), []tier.Key{keyOf("A")}, time.Now().Add(time.Hour))[0].Err)
		requireMiss(t, l.Delete(t.Context(), []tier.Key{keyOf("A")})[0])
		require.ErrorIs(t, put(l, objectOf("A", 1), []byte("A")), fs.ErrInvalid)
		mustGet(t, l, "a", 100)
		require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0])
		require.NoError(t, put(l, objectOf("A", 1), []byte("A")))
		b, err := get(l, "A")
		require.NoError(t, err)
		require.Equal(t, "A", string(b))
	}
}

// A file that is replaced by one of the same size is described as the new one, by every call that can know.
func TestFileReplacedByOneOfTheSameSize(t *testing.T) {
	first, second := make([]byte, 28), make([]byte, 28)
	first[0], first[8], second[0], second[8] = 16, 2, 16, 3
	k := tier.Key{Space: "space", Name: "x"}
	for name, see := range map[string]func(l *Level){
		"look":   func(l *Level) { require.NoError(t, stat(l, "x")) },
		"get":    func(l *Level) { _, err := get(l, "x"); require.NoError(t, err) },
		"search": func(l *Level) { require.NoError(t, l.root.searchOnce()) },
	} {
		dir := t.TempDir()
		l := ready(t, dir, Options{Layout: LMCache{}, Space: "space", Shared: true})
		require.NoError(t, put(l, tier.Object{Key: k, Size: 16, Note: first}, make([]byte, 16)))
		until := time.Now().Add(time.Hour)
		require.NoError(t, l.Pin(t.Context(), []tier.Key{k}, until)[0].Err)
		path := filepath.Join(dir, "x.data")
		require.NoError(t, os.WriteFile(path+".tmp", append(second, make([]byte, 16)...), 0o600))
		require.NoError(t, os.Chtimes(path+".tmp", until, until)) // any other time
		require.NoError(t, os.Rename(path+".tmp", path))
		see(l)
		for o, err := range l.List(t.Context(), "") {
			require.NoError(t, err)
			require.Equal(t, second, o.Note[:28], name)
		}
		require.Equal(t, second, l.Stat(t.Context(), []tier.Key{k})[0].Object.Note[:28], name)
		require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{k})[0], tier.ErrInUse, "the promise of %s", name)
		require.EqualValues(t, 1, l.Usage().Objects)
	}
}

// What room was needed for, and was found to be written again, is described as it is, too.
func TestFileReplacedWhenItWasToGo(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	first, second := make([]byte, 28), make([]byte, 28)
	first[0], first[8], second[0], second[8] = 16, 2, 16, 3
	x, y := tier.Key{Space: "space", Name: "x"}, tier.Key{Space: "space", Name: "y"}
	l := ready(t, dir, Options{
		Layout: LMCache{}, Space: "space", Shared: true, Capacity: 4096, MinAge: time.Hour, rescan: time.Hour,
		now: func() time.Time {
			return now
		},
	})
	require.NoError(t, put(l, tier.Object{Key: x, Size: 16, Note: first}, make([]byte, 16)))
	now = now.Add(2 * time.Hour)
	path := filepath.Join(dir, "x.data")
	require.NoError(t, os.WriteFile(path, append(second, make([]byte, 16)...), 0o600))
	require.NoError(t, os.Chtimes(path, now, now))
	require.ErrorIs(t, put(l, tier.Object{Key: y, Size: 16, Note: first}, make([]byte, 16)), tier.ErrFull)
	require.Equal(t, second, l.Stat(t.Context(), []tier.Key{x})[0].Object.Note[:28])
	now = now.Add(2 * time.Hour)
	require.NoError(t, put(l, tier.Object{Key: y, Size: 16, Note: first}, make([]byte, 16)))
}

// A file that is replaced by another program's is found at once, also where one of ours was deleted before.
func TestFileReplacedAfterADelete(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	l := ready(t, dir, sharedOptions(&now))
	require.NoError(t, put(l, objectOf("x", 1), []byte("1")))
	require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("x")})[0])
	write(t, dir, "x", "22")
	require.NoError(t, stat(l, "x"))
	write(t, dir, "x", "333")
	require.NoError(t, stat(l, "x"))
}

// TestAncestorsAreFoundBesidePuts: an ancestor that is looked at is being written at the same time.
func TestAncestorsAreFoundBesidePuts(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Shared: true, MinAge: time.Nanosecond})
	for n := range 2000 {
		middle, child := objectOf(fmt.Sprint("middle", n), 100), objectOf(fmt.Sprint("child", n), 100)
		middle.Parent, child.Parent = fmt.Sprint("nowhere", n), middle.Name
		var both sync.WaitGroup
		for _, o := range []tier.Object{middle, child} {
			both.Go(func() { assert.NoError(t, put(l, o, content(o.Name, 100))) })
		}
		both.Wait()
	}
}
