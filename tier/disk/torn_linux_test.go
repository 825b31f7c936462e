package disk

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// torn is a root with one object, whose file is damaged again and again.
type torn struct {
	t     *testing.T
	dir   string
	l     *Level
	path  string
	whole []byte
	size  int
	found int64
}

func newTorn(t *testing.T, size int, o Options) *torn {
	w := &torn{t: t, dir: t.TempDir(), size: size}
	w.l = ready(t, w.dir, o)
	mustPut(t, w.l, "torn", size)
	w.path = fileOf(t, w.dir, "torn")
	var err error
	w.whole, err = os.ReadFile(w.path)
	require.NoError(t, err)
	return w
}

// is expects a miss with damage of a file that has these bytes, and that nothing of it is left; and then
// that the object can be stored again.
func (w *torn) is(file []byte, how string, at int) {
	require.NoError(w.t, os.WriteFile(w.path, file, 0o600))
	gets := []tier.Get{{Key: keyOf("torn")}}
	w.l.Get(context.Background(), gets)
	if gets[0].Err == nil {
		require.Equal(w.t, content("torn", w.size), gets[0].Bytes, "%s %d: garbage", how, at)
		require.FailNow(w.t, "the damage was not found", "%s %d", how, at)
	}
	require.ErrorIs(w.t, gets[0].Err, tier.ErrNotFound, "%s %d", how, at)
	require.ErrorIs(w.t, gets[0].Err, tier.ErrCorrupt, "%s %d", how, at)
	require.Nil(w.t, gets[0].Bytes)
	w.found++
	requireMiss(w.t, stat(w.l, "torn"))
	_, err := os.Lstat(w.path)
	require.ErrorIs(w.t, err, os.ErrNotExist, "%s %d: the file is in its place", how, at)
	require.Equal(w.t, w.found, w.l.Usage().Corrupt)
	require.Zero(w.t, w.l.Usage().Bytes)
	require.NoError(w.t, put(w.l, objectOf("torn", w.size), content("torn", w.size)))
}

// TestTornAtEveryByte: a file of 4 KiB, cut at every byte, with every byte flipped, zeroed from every byte
// on, and with bytes behind its end. The race detector sees a fifth of the bytes.
func TestTornAtEveryByte(t *testing.T) {
	w := newTorn(t, 4096-nativeAlign, Options{})
	require.Equal(t, 4096, len(w.whole))
	stride := 1
	if raceEnabled {
		stride = 5
	}
	for at := rand.IntN(stride); at < len(w.whole); at += stride {
		w.is(w.whole[:at], "cut at", at)
		flipped := slices.Clone(w.whole)
		flipped[at] ^= byte(1 + rand.IntN(255))
		w.is(flipped, "flipped", at)
		zeroed := slices.Clone(w.whole)
		clear(zeroed[at:])
		if !bytes.Equal(zeroed, w.whole) {
			w.is(zeroed, "zeroed from", at)
		}
	}
	w.is(append(slices.Clone(w.whole), 0), "grown by", 1)
	mustGet(t, w.l, "torn", w.size)
}

// TestTornLargeFile: 34 MiB at the borders of its head and of pages.
func TestTornLargeFile(t *testing.T) {
	size := 34 << 20
	if testing.Short() || raceEnabled {
		size = 3 << 20
	}
	w := newTorn(t, size, Options{})
	var at []int
	for _, border := range []int{0, 8, 12, 16, 24, 32, 36, 48, 60, 64, 4096, 8192, blockBytes, blockBytes + 64,
		len(w.whole) / 2 &^ 4095, len(w.whole) &^ 4095, len(w.whole)} {
		for _, a := range []int{border - 1, border, border + 1} {
			if a >= 0 && a < len(w.whole) {
				at = append(at, a)
			}
		}
	}
	for _, a := range at {
		w.is(w.whole[:a], "cut at", a)
		w.whole[a] ^= 0x10
		w.is(w.whole, "flipped", a)
		w.whole[a] ^= 0x10
	}
	for _, a := range []int{0, 4096, len(w.whole) / 2 &^ 4095, len(w.whole) &^ 4095} {
		zeroed := slices.Clone(w.whole)
		clear(zeroed[a:min(a+4096, len(zeroed))])
		w.is(zeroed, "a page of zeros at", a)
	}
	mustGet(t, w.l, "torn", size)
}

// TestTornFilesAreFoundBySearch: heads that are damaged go when the root is opened, bytes when they are
// read, or by Verify.
func TestTornFilesAreFoundBySearch(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	require.NoError(t, err)
	for _, name := range []string{"good", "cut", "head", "bytes"} {
		mustPut(t, l, name, 1000)
	}
	closeLevel(t, l)
	require.NoError(t, os.Truncate(fileOf(t, dir, "cut"), 700))
	flip(t, fileOf(t, dir, "head"), 50)
	flip(t, fileOf(t, dir, "bytes"), 500)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s-space", "README"), []byte("a foreign file"), 0o600))

	l = ready(t, dir, Options{KeepDamaged: 1 << 20})
	require.EqualValues(t, 2, l.Usage().Corrupt)
	require.EqualValues(t, 2, l.Usage().Objects)
	require.Equal(t, Search{Files: 5, Foreign: 1, Damaged: 2, Complete: true}, l.Indexed())
	mustGet(t, l, "good", 1000)
	verified := map[string]error{}
	for v, err := range l.Verify(t.Context()) {
		require.NoError(t, err)
		verified[v.Object.Name] = v.Err
	}
	require.NoError(t, verified["good"])
	require.ErrorIs(t, verified["bytes"], tier.ErrCorrupt)
	require.ErrorIs(t, verified[""], os.ErrInvalid)
	require.Len(t, verified, 3)
	require.EqualValues(t, 3, l.Usage().Corrupt)
	require.EqualValues(t, 1, l.Usage().Objects)
	_, _, aside := files(t, dir)
	require.Len(t, aside, 3)
}

// Damaged files that are kept have a bound, and the newest stay.
func TestDamagedFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{KeepDamaged: 5000})
	for i := range 20 {
		name := string(rune('a' + i))
		mustPut(t, l, name, 1000)
		flip(t, fileOf(t, dir, name), 1000)
		_, err := get(l, name)
		require.ErrorIs(t, err, tier.ErrCorrupt)
	}
	_, _, aside := files(t, dir)
	require.Len(t, aside, 4)
	for i, name := range []string{"q", "r", "s", "t"} {
		require.Contains(t, aside[i], filepath.Base(fileOf(t, dir, name)))
	}
	mustPut(t, l, "large", 5000)
	flip(t, fileOf(t, dir, "large"), 1000)
	_, err := get(l, "large")
	require.ErrorIs(t, err, tier.ErrCorrupt)
	_, _, aside = files(t, dir)
	require.Len(t, aside, 4, "what is larger than the bound is not kept")
	require.NoError(t, l.Close())
	ready(t, dir, Options{})
	_, _, aside = files(t, dir)
	require.Empty(t, aside, "without KeepDamaged nothing stays")
}

// cutter cuts a file while it is read.
type cutter struct {
	path string
	size int64
}

func (c cutter) Write(p []byte) (int, error) { return len(p), os.Truncate(c.path, c.size) }

// A file that is cut while it is read is damage; there is no SIGBUS, and no end of file that nobody reports.
func TestCutWhileItIsRead(t *testing.T) {
	w := newTorn(t, 3*blockBytes, Options{})
	gets := []tier.Get{{Key: keyOf("torn"), To: cutter{w.path, blockBytes + 1000}}}
	w.l.Get(t.Context(), gets)
	require.ErrorIs(t, gets[0].Err, tier.ErrNotFound)
	require.ErrorIs(t, gets[0].Err, tier.ErrCorrupt)
	requireMiss(t, stat(w.l, "torn"))
}

// A file at the place of another one is another program's: it is not its object, and not ours to remove.
func TestFileAtAnotherPlace(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 100)
	mustPut(t, l, "b", 100)
	b, err := os.ReadFile(fileOf(t, dir, "a"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(fileOf(t, dir, "b"), b, 0o600))
	_, err = get(l, "b")
	requireMiss(t, err)
	requireMiss(t, stat(l, "b"))
	_, err = os.Stat(fileOf(t, dir, "b"))
	require.NoError(t, err)
	mustPut(t, l, "b", 100)
	mustGet(t, l, "b", 100)
	mustGet(t, l, "a", 100)
}

// Links, folders, pipes and devices are no objects, and nobody waits for them.
func TestOddFiles(t *testing.T) {
	for _, search := range []bool{false, true} {
		dir := t.TempDir()
		l, err := Open(dir, Options{})
		require.NoError(t, err)
		outside := filepath.Join(t.TempDir(), "outside")
		for _, name := range []string{"kept", "link", "inside", "pipe", "folder"} {
			mustPut(t, l, name, 100)
		}
		for _, name := range []string{"link", "inside", "pipe", "folder"} {
			b, err := os.ReadFile(fileOf(t, dir, name))
			require.NoError(t, err)
			require.NoError(t, os.Remove(fileOf(t, dir, name)))
			if name == "link" {
				require.NoError(t, os.WriteFile(outside, b, 0o600))
			}
			if name == "inside" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "s-space", "target"), b, 0o600))
			}
		}
		require.NoError(t, os.Symlink(outside, fileOf(t, dir, "link")))
		require.NoError(t, os.Symlink("../target", fileOf(t, dir, "inside")))
		require.NoError(t, makePipe(fileOf(t, dir, "pipe")))
		require.NoError(t, os.Mkdir(fileOf(t, dir, "folder"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(fileOf(t, dir, "folder"), "file"), nil, 0o600))
		if search {
			require.NoError(t, l.Close())
			l = ready(t, dir, Options{})
			require.EqualValues(t, 1, l.Usage().Objects)
			require.EqualValues(t, 6, l.Indexed().Foreign, "two links, a pipe, the target, the folder and its file")
		}
		for _, name := range []string{"link", "inside", "pipe", "folder"} {
			_, err := get(l, name)
			requireMiss(t, err)
			requireMiss(t, stat(l, name))
			_, err = os.Lstat(fileOf(t, dir, name))
			require.NoError(t, err, "it is not ours")
		}
		mustGet(t, l, "kept", 100)
		for _, name := range []string{"link", "pipe"} {
			mustPut(t, l, name, 100)
			mustGet(t, l, name, 100)
		}
		b, err := os.ReadFile(outside)
		require.NoError(t, err)
		require.Equal(t, 100+nativeAlign, len(b), "it was not written through the link")
		require.ErrorIs(t, put(l, objectOf("folder", 100), content("folder", 100)), fs.ErrExist)
		require.NoError(t, os.Remove(filepath.Join(fileOf(t, dir, "folder"), "file")))
		mustPut(t, l, "folder", 100)
		mustGet(t, l, "folder", 100)
		_, temporary, _ := files(t, dir)
		require.Empty(t, temporary)
		closeLevel(t, l)
	}
}

// The writer gets what was read before damage is found; an error of its own is handed back as it is.
func TestWriterThatFails(t *testing.T) {
	l := ready(t, t.TempDir(), Options{})
	mustPut(t, l, "a", 2*blockBytes)
	gets := []tier.Get{{Key: keyOf("a"), To: failingWriter{}}}
	l.Get(t.Context(), gets)
	require.Equal(t, io.ErrClosedPipe, gets[0].Err)
	mustGet(t, l, "a", 2*blockBytes)
}

// A panic of a caller's reader or memory is the caller's, and leaves nothing.
func TestPanicsAreTheCallers(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	for _, n := range []int{1, 5} {
		var puts []tier.Put
		var gets []tier.Get
		for i := range n {
			o := objectOf(string(rune('a'+i)), 10)
			puts = append(puts, tier.Put{Object: o, Bytes: content(o.Name, 10)})
			gets = append(gets, tier.Get{Key: o.Key, Into: func(tier.Object) ([]byte, error) { panic("into") }})
		}
		puts[n-1] = tier.Put{Object: objectOf("stream", 10), From: panicking{}}
		require.PanicsWithValue(t, "from", func() { l.Put(context.Background(), puts) })
		_, temporary, _ := files(t, dir)
		require.Empty(t, temporary)
		requireMiss(t, stat(l, "stream"))
		mustPut(t, l, "stream", 10)
		mustPut(t, l, "a", 10)
		require.PanicsWithValue(t, "into", func() { l.Get(context.Background(), gets) })
		require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("stream")})[0])
	}
	check(t, l)
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("from") }

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A folder that is a link is not followed, not even inside the root: by the kernel's call for it, nor where
// there is none.
func TestLinkedFolder(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{})
	mustPut(t, l, "a", 100)
	mustPut(t, l, "b", 100)
	parent := filepath.Dir(fileOf(t, dir, "a"))
	require.NoError(t, os.Rename(parent, parent+".moved"))
	require.NoError(t, os.Symlink(filepath.Base(parent)+".moved", parent))
	f := l.currentRoot().folder.tree
	for name, open := range map[string]func(string) (*os.File, error){"openat2": f.OpenNoLinks,
		"os.Root": f.OpenByRoot} {
		path, err := Native{}.Path(keyOf("a"))
		require.NoError(t, err)
		_, err = open(path)
		require.ErrorIs(t, err, errForeign, name)
		path, err = Native{}.Path(keyOf("b"))
		require.NoError(t, err)
		file, err := open(path)
		require.NoError(t, err, name)
		require.NoError(t, file.Close())
		_, err = open(path + "x")
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	_, err := get(l, "a")
	requireMiss(t, err)
}
