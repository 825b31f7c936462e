package location

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Location{
		"shm:name":                             {Segment: "name"},
		"redis://h:1/3?layout=lmcache&space=s": {URL: "redis://h:1/3?layout=lmcache&space=s"},
		"s3://bucket/p?endpoint=http://h:9000": {URL: "s3://bucket/p?endpoint=http://h:9000"},
		"/srv/x":                               {Folder: "/srv/x"},
		"x?y":                                  {Folder: "x?y"},
		"/a?b?space=c%26+d":                    {Folder: "/a?b", Space: "c& d"},
		"/x?layout=native":                     {Folder: "/x", Layout: disk.Native{}},
		"/x?shared=true":                       {Folder: "/x", Shared: true},
		"/x?layout=vllm-ec&space=s":            {Folder: "/x", Layout: encoder.Tree{}, Space: "s", Shared: true},
		"/x?layout=lmcache&shared=false":       {Folder: "/x", Layout: disk.LMCache{}},
		"folder:/x":                            {Folder: "/x", Hosts: true},
		"folder:/x?layout=lmcache&space=s":     {Folder: "/x", Hosts: true, Layout: disk.LMCache{}, Space: "s", Shared: true},
	} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"": "no name", "?space=x": "no name", "shm:": "no name of a segment",
		"http://h": "unknown scheme", "redis://h?layout=tape": "tape",
		"s3://": "bucket", "s3://bucket?tape=1": "unknown parameter",
		"/x?layout=tape": `"tape" is not one of native, vllm-ec, lmcache`, "/x?space=a&space=b": "more than once", "/x?sise=1": `"sise"`,
		"folder:": "no name", "folder:/x?shared=true": "always", "folder:/x?layout=vllm-ec&space=s": "folder for each object",
		"/x?shared=yes": "true or false", "/x?space=%zz": "%zz", "/x?layout=": `""`,
	} {
		_, err := Parse(text)
		require.ErrorIs(t, err, fs.ErrInvalid, text)
		require.ErrorContains(t, err, want, text)
	}
}

// TestFolderKnowsItsLayout: what was opened once needs no options.
func TestFolderKnowsItsLayout(t *testing.T) {
	for _, options := range []string{"", "?space=s", "?layout=vllm-ec", "?layout=vllm-ec&space=s", "?layout=lmcache&space=s&shared=false"} {
		t.Run(options, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "x")
			said, err := Parse(folder + options)
			require.NoError(t, err)
			said, err = said.Identify(true)
			require.NoError(t, err)
			level, err := said.Open(t.Context(), Options{})
			require.NoError(t, err)
			require.NoError(t, level.Close())

			alone, err := Parse(folder)
			require.NoError(t, err)
			alone, err = alone.Identify(false)
			require.NoError(t, err)
			require.Equal(t, said.Layout, alone.Layout)
			require.Equal(t, said.Space, alone.Space)
			require.Equal(t, said.foreign(), alone.Shared, "without a word, what others wrote is theirs, too")
			level, err = alone.Open(t.Context(), Options{ReadOnly: true})
			require.NoError(t, err)
			require.NoError(t, level.Close())

			other, err := Parse(folder + "?layout=native")
			require.NoError(t, err)
			if _, err = other.Identify(true); said.foreign() {
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.ErrorContains(t, err, "is a root of the layout "+said.Layout.Name())
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestOnlyCreateMakesAFolder, and a folder of other things is none.
func TestOnlyCreateMakesAFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "x")
	_, err := Location{Folder: folder}.Identify(false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoDirExists(t, folder)
	require.NoError(t, os.Mkdir(folder, 0o700))
	_, err = Location{Folder: folder}.Identify(false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, folder+"?layout=vllm-ec")
	l, err := Location{Folder: folder}.Identify(true)
	require.NoError(t, err)
	require.Equal(t, disk.Native{}, l.Layout)
}

func TestSegment(t *testing.T) {
	dir := t.TempDir()
	_, err := Location{Segment: "s"}.Open(t.Context(), Options{ShmDir: dir})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `no segment "s"`)
	made, err := Location{Segment: "s"}.Open(t.Context(), Options{ShmDir: dir, Size: 1 << 20})
	require.NoError(t, err)
	puts := []tier.Put{{Object: tier.Object{Key: tier.Key{Space: "a", Name: "b"}, Size: 1}, Bytes: []byte{7}}}
	made.Put(t.Context(), puts)
	require.NoError(t, puts[0].Err)
	beside, err := Location{Segment: "s"}.Open(t.Context(), Options{ShmDir: dir, ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, beside.Stat(t.Context(), []tier.Key{puts[0].Object.Key})[0].Err)
	require.NoError(t, beside.Close())
	require.NoError(t, made.Close())
	again, err := Location{Segment: "s"}.Open(t.Context(), Options{ShmDir: dir})
	require.NoError(t, err)
	require.NoError(t, again.(*memory.Level).Remove())
}

func TestLayoutsThatNeedASpace(t *testing.T) {
	for text, want := range map[string]bool{"/x": false, "/x?layout=native": false, "/x?layout=vllm-ec": true, "/x?layout=lmcache&space=s": true} {
		l, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, l.NeedsSpace(), text)
	}
}

// TestFolderOfHosts: a folder that several hosts use is opened by two at a time, and knows its layout.
func TestFolderOfHosts(t *testing.T) {
	dir := t.TempDir()
	said, err := Parse("folder:" + dir + "?layout=lmcache&space=s")
	require.NoError(t, err)
	said, err = said.Identify(true)
	require.NoError(t, err)
	for range 2 {
		level, err := said.Open(t.Context(), Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, level.Close()) }()
		require.Equal(t, "folder", level.Name())
	}
	alone, err := Parse("folder:" + dir)
	require.NoError(t, err)
	alone, err = alone.Identify(false)
	require.NoError(t, err)
	require.Equal(t, "lmcache", alone.Layout.Name())
	require.Equal(t, "s", alone.Space)
	_, err = Parse(dir)
	require.NoError(t, err)
	disk, err := Location{Folder: dir}.Identify(true)
	require.ErrorContains(t, err, "folder:", "%+v", disk)
}
