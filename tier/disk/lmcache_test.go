//go:build linux

package disk_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// lmcacheGolden are files that the real FS connector wrote.
type lmcacheGolden struct {
	Files []struct {
		Path, Key, Metadata, SHA256 string
		First, Size                 int
	}
	Torn []struct {
		Bytes, Of int
		Read      bool
	}
}

func readLMCacheGolden(t *testing.T) (g lmcacheGolden) {
	b, err := os.ReadFile(filepath.Join("testdata", "lmcache_fs.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &g))
	require.Len(t, g.Files, 4)
	return g
}

func TestGoldenLMCacheFiles(t *testing.T) {
	g := readLMCacheGolden(t)
	ctx, root := t.Context(), t.TempDir()
	o := disk.Options{Layout: disk.LMCache{}, Space: "model", Shared: true}
	l, err := disk.Open(root, o)
	require.NoError(t, err)
	for _, f := range g.Files {
		note, err := hex.DecodeString(f.Metadata)
		require.NoError(t, err)
		data := make([]byte, f.Size-len(note))
		for i := range data {
			data[i] = byte(f.First + i)
		}
		object := tier.Object{Key: tier.Key{Space: "model", Name: f.Key}, Size: int64(len(data)), Note: note}
		puts := []tier.Put{{Object: object, Bytes: data}}
		l.Put(ctx, puts)
		require.NoError(t, puts[0].Err)
		b, err := os.ReadFile(filepath.Join(root, f.Path))
		require.NoError(t, err)
		require.Equal(t, f.SHA256, fmt.Sprintf("%x", sha256.Sum256(b)), "the bytes that LMCache wrote")
	}
	require.NoError(t, l.Close())

	// A file of theirs in a folder that we have not seen is found by its key, with its metadata.
	other := t.TempDir()
	require.NoError(t, os.CopyFS(other, os.DirFS(root)))
	require.NoError(t, os.RemoveAll(filepath.Join(other, ".ringcache")))
	l, err = disk.Open(other, o)
	require.NoError(t, err)
	require.NoError(t, l.WaitIndex(ctx))
	listed := 0
	for x, err := range l.List(ctx, "") {
		require.NoError(t, err)
		get := []tier.Get{{Key: x.Key}}
		l.Get(ctx, get)
		require.NoError(t, get[0].Err)
		listed++
	}
	require.Equal(t, len(g.Files), listed)
	require.NoError(t, l.Close())
	t.Logf("%d files of LMCache, byte for byte", listed)
}

// What LMCache reads of a torn file is a miss, and so it is here; a file with bytes behind the object's is
// foreign, and so is one that is too short to tell whose it is.
func TestTornLMCacheFiles(t *testing.T) {
	g := readLMCacheGolden(t)
	f := g.Files[1]
	note, err := hex.DecodeString(f.Metadata)
	require.NoError(t, err)
	whole := append(bytes.Clone(note), make([]byte, f.Size-len(note)+10)...)
	for n := range whole {
		h, err := disk.LMCache{}.ParseHead(f.Path, bytes.NewReader(whole[:n]), int64(n))
		switch {
		case n < 28:
			require.ErrorIs(t, err, fs.ErrInvalid, n)
			require.NotErrorIs(t, err, tier.ErrCorrupt, n)
		case n < f.Size:
			require.ErrorIs(t, err, tier.ErrCorrupt, n)
		case n == f.Size:
			require.NoError(t, err)
			require.Equal(t, f.Key, h.Object.Name)
			require.EqualValues(t, len(note), h.Length)
		default:
			require.ErrorIs(t, err, fs.ErrInvalid, n)
		}
	}
	for _, torn := range g.Torn {
		_, err := disk.LMCache{}.ParseHead(f.Path, bytes.NewReader(whole[:torn.Bytes]), int64(torn.Bytes))
		require.Equal(t, torn.Read && torn.Bytes == torn.Of, err == nil, torn.Bytes)
	}
}

// A connector without save_chunk_meta writes the bytes alone, to files of the same names: they are left
// alone.
func TestFilesOfLMCacheWithoutMetadataStay(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for i, b := range [][]byte{
		bytes.Repeat([]byte{0x10, 0xbf, 0x01, 0x3f}, 1024), // the length would be more than the file
		bytes.Repeat([]byte{0x10, 0xbf, 0x01, 0xff}, 1024), // and here negative
		bytes.Repeat([]byte{0x10, 0, 0, 0x3f}, 5),
		{},
	} {
		f := filepath.Join(dir, fmt.Sprintf("model@1@0@%d@bfloat16.data", i))
		require.NoError(t, os.WriteFile(f, b, 0o600))
		require.NoError(t, os.Chtimes(f, old, old))
	}
	l, err := disk.Open(dir, disk.Options{Layout: disk.LMCache{}, Space: "s", Shared: true})
	require.NoError(t, err)
	require.NoError(t, l.WaitIndex(t.Context()))
	require.EqualValues(t, 4, l.Indexed().Foreign)
	require.Zero(t, l.Usage().Corrupt)
	for i := range 4 {
		k := tier.Key{Space: "s", Name: fmt.Sprintf("model@1@0@%d@bfloat16", i)}
		require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{k})[0].Err, tier.ErrNotFound)
	}
	require.NoError(t, l.Close())
	left, err := filepath.Glob(filepath.Join(dir, "*.data"))
	require.NoError(t, err)
	require.Len(t, left, 4)
}

// A key whose file is that of another one does not get that one's bytes.
func TestLMCacheKeysDoNotShareFiles(t *testing.T) {
	l, err := disk.Open(t.TempDir(), disk.Options{Layout: disk.LMCache{}, Space: "s", Shared: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	has, other := tier.Key{Space: "s", Name: "x/SEP-y"}, tier.Key{Space: "s", Name: "x-SEP/y"}
	note := make([]byte, 28)
	note[0] = 16
	data := []byte("bytes of x/SEP-y")
	puts := []tier.Put{{Object: tier.Object{Key: has, Size: 16, Note: note}, Bytes: data},
		{Object: tier.Object{Key: other, Size: 16, Note: note}, Bytes: data}}
	l.Put(t.Context(), puts)
	require.NoError(t, puts[0].Err)
	require.ErrorIs(t, puts[1].Err, fs.ErrInvalid)
	gets := []tier.Get{{Key: has}, {Key: other}}
	l.Get(t.Context(), gets)
	require.NoError(t, gets[0].Err)
	require.Equal(t, data, gets[0].Bytes)
	require.ErrorIs(t, gets[1].Err, fs.ErrInvalid)
	require.Nil(t, gets[1].Bytes)
}

func TestLMCacheNames(t *testing.T) {
	for name, want := range map[string]string{
		"org/model@1@0@ff@half": "org-SEP-model@1@0@ff@half.data",
		"x/SEP-y":               "x-SEP-SEP-y.data",
		"a-SEP-b":               "", "x-SEP/y": "", "-SEP/SEP-": "", "": "", ".hidden": "", "../x": "",
		string(make([]byte, 251)): "",
	} {
		got, err := disk.LMCache{}.Path(tier.Key{Space: "s", Name: name})
		require.Equal(t, want, got)
		require.Equal(t, want == "", err != nil)
		if want != "" {
			h, err := disk.LMCache{}.ParseHead(got, bytes.NewReader(make([]byte, 28)), 28)
			require.NoError(t, err)
			require.Equal(t, name, h.Object.Name)
		} else {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
	}
	for _, note := range [][]byte{nil, make([]byte, 27), append([]byte{1}, make([]byte, 27)...),
		{0, 0, 0, 0, 9, 27: 0}} {
		_, err := disk.LMCache{}.AppendHead(nil, tier.Object{Note: note}, 0)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	for _, path := range []string{"a/b.data", "a.tmp", ".x.data", "x"} {
		_, err := disk.LMCache{}.ParseHead(path, bytes.NewReader(make([]byte, 28)), 28)
		require.ErrorIs(t, err, fs.ErrInvalid, path)
	}
}
