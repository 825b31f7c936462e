//go:build linux

package encoder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
)

func key(name string) tier.Key { return tier.Key{Space: "gemma", Name: name} }

func write(t *testing.T, folder, path string, data []byte) {
	t.Helper()
	path = filepath.Join(folder, filepath.FromSlash(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// outcome is what an import or export did, by name.
func outcome(t *testing.T, seq func(func(tier.Object, error) bool)) map[string]error {
	t.Helper()
	out := make(map[string]error)
	for o, err := range seq {
		require.NotContains(t, out, o.Name)
		out[o.Name] = err
	}
	return out
}

func object(name string, data []byte) tier.Object {
	return tier.Object{Key: key(name), Size: int64(len(data)), Tenant: "t", Note: fmt.Appendf(nil, "uint8 %d", len(data))}
}

func TestImport(t *testing.T) {
	ctx, folder, l := context.Background(), t.TempDir(), newMapLevel()
	big := bytes.Repeat([]byte("0123456789"), 20_000)
	plain := encoder.Tree{Plain: true}
	const file = "/encoder_cache.safetensors"
	write(t, folder, "ours"+file, treeFile(t, tree, object("ours", big), big))
	write(t, folder, "stock"+file, treeFile(t, plain, object("stock", big), big))
	write(t, folder, "nothing"+file, treeFile(t, plain, object("nothing", nil), nil))
	write(t, folder, "there"+file, treeFile(t, tree, object("there", big), big))
	write(t, folder, "empty"+file, nil)
	write(t, folder, "torn"+file, treeFile(t, tree, object("torn", big), big)[:1000])
	flipped := treeFile(t, tree, object("flipped", big), big)
	flipped[len(flipped)-70_000] ^= 1
	write(t, folder, "flipped"+file, flipped)
	write(t, folder, "other"+file, bytes.Replace(treeFile(t, plain, object("other", big), big), []byte("ec_cache"), []byte("kv_cache"), 1))
	write(t, folder, "refused"+file, treeFile(t, tree, object("refused", big), big))
	write(t, folder, "temporary/.tmpAbCdEf", big)
	write(t, folder, "a file", big)
	write(t, folder, ".ringcache"+file, big)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "a folder of a lookup"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "folder"+file), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "pipe"), 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "pipe"+file), 0o600))
	put := []tier.Put{{Object: object("there", big), Bytes: big}}
	l.Put(ctx, put)
	require.NoError(t, put[0].Err)
	l.onPut = func(o tier.Object) error {
		if o.Name == "refused" {
			return tier.ErrFull
		}
		return nil
	}

	got := outcome(t, tree.Import(ctx, folder, "gemma", l))
	for name, want := range map[string]error{
		"ours": nil, "stock": nil, "nothing": nil, "there": tier.ErrExists, "empty": tier.ErrCorrupt, "torn": tier.ErrCorrupt, "flipped": tier.ErrCorrupt,
		"other": fs.ErrInvalid, "refused": tier.ErrFull, "folder": fs.ErrInvalid, "pipe": fs.ErrInvalid,
	} {
		require.Contains(t, got, name)
		require.ErrorIs(t, got[name], want, name)
		delete(got, name)
	}
	require.Empty(t, got)
	require.Len(t, l.objects, 4)
	require.Equal(t, object("ours", big), l.objects[key("ours")])
	require.Equal(t, tier.Object{Key: key("stock"), Size: int64(len(big)), Note: []byte("uint8 200000")}, l.objects[key("stock")])
	require.Equal(t, big, l.data[key("ours")])
	require.Equal(t, big, l.data[key("stock")])
	require.Contains(t, l.objects, key("nothing"))

	// Again: what was copied is there.
	for _, name := range []string{"ours", "stock", "nothing", "there"} {
		require.ErrorIs(t, outcome(t, tree.Import(ctx, folder, "gemma", l))[name], tier.ErrExists, name)
	}
}

func TestImportOfNoFolder(t *testing.T) {
	got := outcome(t, tree.Import(context.Background(), filepath.Join(t.TempDir(), "absent"), "gemma", newMapLevel()))
	require.Len(t, got, 1)
	require.ErrorIs(t, got[""], fs.ErrNotExist)
}

// TestImportIntoALevelThatTrusts: damage is found before the last byte was read.
func TestImportIntoALevelThatTrusts(t *testing.T) {
	folder, l := t.TempDir(), newMapLevel()
	l.trusts = true
	file := treeFile(t, tree, object("a", []byte("twelve bytes")), []byte("twelve bytes"))
	file[len(file)-5] ^= 1
	write(t, folder, "a/encoder_cache.safetensors", file)
	require.ErrorIs(t, outcome(t, tree.Import(context.Background(), folder, "gemma", l))["a"], tier.ErrCorrupt)
	require.Empty(t, l.objects)
}

// TestImportOfAFileThatIsCut while it is read.
func TestImportOfAFileThatIsCut(t *testing.T) {
	folder, l := t.TempDir(), newMapLevel()
	for _, layout := range []encoder.Tree{{}, {Plain: true}} {
		file := treeFile(t, layout, object("a", make([]byte, 5000)), make([]byte, 5000))
		for _, left := range []int{0, len(file) - 5000, len(file) - 4999, len(file) - 1} {
			write(t, folder, "a/encoder_cache.safetensors", file)
			l.onPut = func(tier.Object) error {
				return os.Truncate(filepath.Join(folder, "a/encoder_cache.safetensors"), int64(left))
			}
			require.ErrorIs(t, outcome(t, tree.Import(context.Background(), folder, "gemma", l))["a"], io.ErrUnexpectedEOF, "%d", left)
			require.Empty(t, l.objects)
		}
	}
}

// TestImportOfAFileThatIsWritten in place while it is read: what has a checksum is damaged, and what has none is not known to be of one file.
func TestImportOfAFileThatIsWritten(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a/encoder_cache.safetensors")
	a, b := bytes.Repeat([]byte("a"), 5000), bytes.Repeat([]byte("b"), 5000)
	for _, size := range []int{0, 5000} {
		for layout, want := range map[encoder.Tree]error{{}: tier.ErrCorrupt, {Plain: true}: tier.ErrPending} {
			l := newMapLevel()
			write(t, folder, "a/encoder_cache.safetensors", treeFile(t, layout, object("a", a[:size]), a[:size]))
			old := time.Now().Add(-time.Minute)
			require.NoError(t, os.Chtimes(path, old, old))
			l.onPut = func(o tier.Object) error { // the head was read, and the bytes were not
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				require.NoError(t, err)
				defer f.Close()
				if size == 0 {
					_, err = f.WriteString("more")
					return err
				}
				in, err := os.OpenFile(path, os.O_WRONLY, 0)
				require.NoError(t, err)
				defer in.Close()
				info, err := in.Stat()
				require.NoError(t, err)
				_, err = in.WriteAt(b[:2000], info.Size()-2000)
				return err
			}
			err := outcome(t, tree.Import(context.Background(), folder, "gemma", l))["a"]
			if size == 0 && !layout.Plain {
				require.NoError(t, err, "the checksum is right")
				continue
			}
			require.ErrorIs(t, err, want)
			require.Empty(t, l.objects)
		}
	}
}

// TestDescriptors: none stays open.
func TestDescriptors(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it would close some
	ctx, folder, l := context.Background(), t.TempDir(), newMapLevel()
	for _, name := range []string{"a", "b", "c", "torn", "pipe"} {
		write(t, folder, name+"/encoder_cache.safetensors", treeFile(t, tree, object(name, nil), nil))
	}
	write(t, folder, "torn/encoder_cache.safetensors", nil)
	require.NoError(t, os.Remove(filepath.Join(folder, "pipe/encoder_cache.safetensors")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "pipe/encoder_cache.safetensors"), 0o600))
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	before := open()
	require.Len(t, outcome(t, tree.Import(ctx, folder, "gemma", l)), 5)
	require.Equal(t, before, open())
	for range tree.Import(ctx, folder, "other", l) {
		break
	}
	require.Equal(t, before, open())
	l.onGet = func(o tier.Object) error {
		if o.Name == "b" {
			return tier.ErrUnavailable
		}
		return nil
	}
	out := t.TempDir()
	require.Len(t, outcome(t, tree.Export(ctx, l, "gemma", out)), 3)
	require.Len(t, outcome(t, tree.Export(ctx, l, "gemma", out)), 3)
	require.Equal(t, before, open())
}

// TestImportOfLinks: a link does not lead out of the folder.
func TestImportOfLinks(t *testing.T) {
	folder, outside, l := t.TempDir(), t.TempDir(), newMapLevel()
	write(t, outside, "x/encoder_cache.safetensors", treeFile(t, tree, object("x", nil), nil))
	require.NoError(t, os.Symlink(filepath.Join(outside, "x"), filepath.Join(folder, "x")))
	require.Error(t, outcome(t, tree.Import(context.Background(), folder, "gemma", l))["x"])
	require.Empty(t, l.objects)
}

func TestImportEndsWithContextAndLoop(t *testing.T) {
	folder := t.TempDir()
	for i := range 600 { // more than two batches
		name := fmt.Sprintf("n%03d", i)
		write(t, folder, name+"/encoder_cache.safetensors", treeFile(t, tree, object(name, nil), nil))
	}
	l := newMapLevel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	var last error
	for _, err := range tree.Import(ctx, folder, "gemma", l) {
		if n++; n == 300 {
			cancel()
		}
		last = err
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Equal(t, 301, n)
	require.Len(t, l.objects, 300)
	for range tree.Import(context.Background(), folder, "gemma", l) {
		if n++; n == 900 {
			break
		}
	}
	require.Len(t, outcome(t, tree.Import(context.Background(), folder, "gemma", l)), 600)
	require.Len(t, l.objects, 600)
}

func TestExport(t *testing.T) {
	for _, layout := range []encoder.Tree{{}, {Plain: true}} {
		ctx, folder, l := context.Background(), filepath.Join(t.TempDir(), "new"), newMapLevel()
		big := bytes.Repeat([]byte("0123456789"), 20_000)
		broken := errors.New("broken")
		for _, o := range []tier.Object{
			object("a", big), object("empty", nil), object("there", big), object("other there", big), object("torn there", big), object("fails", big), object("folder", nil),
			{Key: key("a/b"), Note: []byte("uint8 0")}, {Key: key("no note")}, {Key: tier.Key{Space: "other", Name: "o"}, Note: []byte("uint8 0")},
		} {
			put := []tier.Put{{Object: o, Bytes: big[:o.Size]}}
			l.Put(ctx, put)
			require.NoError(t, put[0].Err)
		}
		stock := treeFile(t, encoder.Tree{Plain: true}, object("there", big), big)
		write(t, folder, "there/encoder_cache.safetensors", stock)
		write(t, folder, "other there/encoder_cache.safetensors", treeFile(t, tree, object("other there", nil), nil))
		write(t, folder, "torn there/encoder_cache.safetensors", stock[:5000])
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "folder/encoder_cache.safetensors/x"), 0o755))
		l.onGet = func(o tier.Object) error {
			if o.Name == "fails" {
				return broken
			}
			return nil
		}
		got := outcome(t, layout.Export(ctx, l, "gemma", folder))
		for name, want := range map[string]error{
			"a": nil, "empty": nil, "other there": nil, "torn there": nil, "there": tier.ErrExists, "fails": broken, "a/b": fs.ErrInvalid, "no note": fs.ErrInvalid,
		} {
			require.Contains(t, got, name)
			require.ErrorIs(t, got[name], want, name)
			delete(got, name)
		}
		require.Error(t, got["folder"])
		delete(got, "folder")
		require.Empty(t, got)
		for _, o := range []tier.Object{object("a", big), object("empty", nil), object("other there", big), object("torn there", big)} {
			path := filepath.Join(folder, o.Name, "encoder_cache.safetensors")
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, treeFile(t, layout, o, big[:o.Size]), file, o.Name)
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), info.Mode())
		}
		file, err := os.ReadFile(filepath.Join(folder, "there/encoder_cache.safetensors"))
		require.NoError(t, err)
		require.Equal(t, stock, file)
		require.Empty(t, temporaries(t, folder))
		require.ErrorIs(t, outcome(t, layout.Export(ctx, l, "gemma", folder))["a"], tier.ErrExists)
	}
}

func temporaries(t *testing.T, folder string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), ".tmp") {
			out = append(out, path)
		}
		return err
	}))
	sort.Strings(out)
	return out
}

// TestExportOfALevelThatLies: what is not what the list promised does not become a file.
func TestExportOfALevelThatLies(t *testing.T) {
	folder, l := t.TempDir(), newMapLevel()
	for name, size := range map[string]int{"short": 2, "long": 4} {
		l.objects[key(name)], l.data[key(name)] = object(name, make([]byte, 3)), make([]byte, size)
	}
	got := outcome(t, tree.Export(context.Background(), l, "gemma", folder))
	require.Error(t, got["short"])
	require.Error(t, got["long"])
	require.Empty(t, temporaries(t, folder))
	_, err := os.Stat(filepath.Join(folder, "short/encoder_cache.safetensors"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestExportEnds(t *testing.T) {
	l := newMapLevel()
	for _, name := range []string{"a", "b", "c"} {
		l.objects[key(name)] = object(name, nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done []error
	for _, err := range tree.Export(ctx, l, "gemma", t.TempDir()) {
		cancel()
		done = append(done, err)
	}
	require.Len(t, done, 2)
	require.NoError(t, done[0])
	require.ErrorIs(t, done[1], context.Canceled)

	broken := errors.New("broken")
	l.listErr = broken
	folder := t.TempDir()
	require.ErrorIs(t, outcome(t, tree.Export(context.Background(), l, "gemma", folder))[""], broken)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries)
	notAFolder := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(notAFolder, nil, 0o600))
	require.Error(t, outcome(t, tree.Export(context.Background(), l, "gemma", notAFolder))[""])
}

// TestThereAndBack moves tensors through a tree, with and without metadata.
func TestThereAndBack(t *testing.T) {
	for _, layout := range []encoder.Tree{{}, {Plain: true}} {
		ctx, a, b, folder := context.Background(), newMapLevel(), newMapLevel(), t.TempDir()
		k := key("x")
		tensor := &serde.Tensor{DType: "float4_e2m1fn_x2", Shape: []int{2, 3}, Data: []byte("sixsix")}
		require.NoError(t, encoder.Save(ctx, a, tier.Object{Key: k}, tensor))
		require.Equal(t, map[string]error{"x": nil}, outcome(t, layout.Export(ctx, a, "gemma", folder)))
		for _, space := range []string{"gemma", "other", ""} { // files have none
			require.Equal(t, map[string]error{"x": nil}, outcome(t, layout.Import(ctx, folder, space, b)))
			got, err := encoder.Load(ctx, b, tier.Key{Space: space, Name: "x"})
			require.NoError(t, err)
			require.Equal(t, tensor, got)
		}
		require.Len(t, b.objects, 3)
		require.Equal(t, map[string]error{"x": nil}, outcome(t, layout.Export(ctx, b, "", t.TempDir())), "those of the empty space, and not of all")
	}
}
