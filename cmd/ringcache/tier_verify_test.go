//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// TestVerifySilent: tier verify names every file that is no whole object where one could be, with what it is,
// and fails.
func TestVerifySilent(t *testing.T) {
	header := func(length int, json string) func(t *testing.T, file string) {
		return func(t *testing.T, file string) {
			b := binary.LittleEndian.AppendUint64(nil, uint64(length))
			require.NoError(t, os.WriteFile(file, append(b, json...), 0o600))
		}
	}
	damages := map[string]struct {
		do   func(t *testing.T, file string)
		says string
		kind string
	}{
		"torn": {func(t *testing.T, file string) {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(file, info.Size()-1))
		}, "damaged|corrupt", "damaged"},
		"empty": {func(t *testing.T, file string) {
			require.NoError(t, os.Truncate(file, 0))
		}, "corrupt|shorter|not of this layout", "damaged|other"},
		"huge header": {header(1<<40, "{}"), "corrupt|not of this layout", "damaged|other"},
		"broken JSON": {header(8, `{"a":[[[`), "corrupt|not of this layout", "damaged|other"},
		"no tensor":   {header(2, "{}"), "corrupt|not of this layout", "damaged|other"},
		"link": {func(t *testing.T, file string) {
			require.NoError(t, os.Rename(file, file+".moved"))
			require.NoError(t, os.Symlink(filepath.Base(file)+".moved", file))
		}, "symbolic link", "other"},
		"pipe": {func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, syscall.Mkfifo(file, 0o600))
		}, "named pipe", "other"},
		"folder": {func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Mkdir(file, 0o700))
		}, "folder", "other"},
	}
	// The metadata of LMCache: length, format 7, dtype, tokens, width, 0, 0.
	lmcache := make([]byte, 0, 28)
	for _, n := range []uint32{8, 7, 1, 2, 2, 0, 0} {
		lmcache = binary.LittleEndian.AppendUint32(lmcache, n)
	}
	for _, layout := range []struct {
		disk.Layout
		note []byte
		said string // behind the folder
	}{
		{Layout: disk.Native{}},
		{Layout: encoder.Tree{}, note: []byte("bfloat16 2 2"), said: "?layout=vllm-ec"},
		{Layout: encoder.Tree{Plain: true}, note: []byte("bfloat16 2 2"), said: "?layout=vllm-ec"},
		{Layout: disk.LMCache{}, note: lmcache, said: "?layout=lmcache"},
	} {
		for name, d := range damages {
			t.Run(fmt.Sprintf("%s %v %s", layout.Name(), layout.Layout, name), func(t *testing.T) {
				dir := t.TempDir()
				space := layout.Name()
				_, native := layout.Layout.(disk.Native)
				o := disk.Options{Layout: layout.Layout, Shared: !native}
				if !native {
					o.Space = space
				}
				l, err := disk.Open(dir, o)
				require.NoError(t, err)
				puts := []tier.Put{
					{Object: tier.Object{Key: tier.Key{Space: space, Name: "good"}, Size: 8, Note: layout.note},
						Bytes: make([]byte, 8)},
					{Object: tier.Object{Key: tier.Key{Space: space, Name: "bad"}, Size: 8, Note: layout.note},
						Bytes: make([]byte, 8)},
				}
				l.Put(t.Context(), puts)
				require.NoError(t, puts[0].Err)
				require.NoError(t, puts[1].Err)
				require.NoError(t, l.Close())
				verify := []string{"tier", "verify", dir + layout.said}
				out, err := run(t, verify...)
				require.NoError(t, err)
				require.Equal(t, "2 objects with 16 bytes read, 0 damaged\n", out)

				path, err := layout.Path(puts[1].Object.Key)
				require.NoError(t, err)
				d.do(t, filepath.Join(dir, path))
				// What nobody takes for an object is counted, and no damage.
				require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))
				out, err = run(t, verify...)
				require.ErrorContains(t, err, "objects are damaged", out)
				require.Regexp(t, d.says, out)
				require.Regexp(t, "(?m)^("+d.kind+"): .*"+regexp.QuoteMeta(path), out)
				require.Regexp(t, "(?m)read, (1 damaged|0 damaged, 1 other)$", out)
				require.Contains(t, out, path)
				require.Contains(t, out, "other files lie where the layout has no objects")
				require.NotContains(t, out, "good")
				out, err = run(t, append(verify, "--json")...)
				require.Error(t, err)
				require.Contains(t, out, path)
				require.Equal(t, 2, strings.Count(out, "\n"))

				out, said := runBoth(t, "tier", "ls", dir+layout.said)
				require.Contains(t, out, "1 objects, 8 bytes")
				require.Contains(t, said, "files are not listed")
			})
		}
	}
}

// TestVerifyUnreadable: what this user may not read is not called damaged, a folder neither.
func TestVerifyUnreadable(t *testing.T) {
	var sum verifySum
	kinds := []string{
		sum.add(tier.Object{Size: 5}, nil), sum.add(tier.Object{}, fmt.Errorf("x: %w", tier.ErrUnavailable)),
		sum.add(tier.Object{Size: 3}, fmt.Errorf("x: %w", tier.ErrCorrupt)),
		sum.add(tier.Object{}, fmt.Errorf("x: %w", fs.ErrInvalid)),
	}
	require.Equal(t, []string{"", "unreadable", "damaged", "other"}, kinds)
	require.Equal(t, "2 objects with 8 bytes read, 1 damaged, 1 unreadable, 1 other", sum.String())
	if os.Geteuid() == 0 {
		t.Skip("nothing is unreadable to root")
	}
	dir := t.TempDir()
	l, err := disk.Open(dir, disk.Options{Layout: disk.Native{}})
	require.NoError(t, err)
	puts := []tier.Put{
		{Object: tier.Object{Key: tier.Key{Space: "space", Name: "a"}, Size: 8}, Bytes: make([]byte, 8)},
		{Object: tier.Object{Key: tier.Key{Space: "space", Name: "b"}, Size: 8}, Bytes: make([]byte, 8)},
	}
	l.Put(t.Context(), puts)
	require.NoError(t, l.Close())
	paths := make([]string, len(puts))
	for i, p := range puts {
		paths[i], err = disk.Native{}.Path(p.Object.Key)
		require.NoError(t, err)
		paths[i] = filepath.Join(dir, paths[i])
	}
	require.NoError(t, os.Chmod(paths[0], 0))
	require.NoError(t, os.Chmod(filepath.Dir(paths[1]), 0))
	defer func() { require.NoError(t, os.Chmod(filepath.Dir(paths[1]), 0o700)) }()
	out, err := run(t, "tier", "verify", dir)
	require.ErrorContains(t, err, "2 can't be read")
	require.Equal(t, 2, strings.Count(out, "unreadable: "))
}

// runBoth is run with what goes to stderr.
func runBoth(t *testing.T, args ...string) (out, said string) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	old := os.Stderr
	os.Stderr = w
	out, err = run(t, args...)
	os.Stderr = old
	require.NoError(t, err)
	require.NoError(t, w.Close())
	b := make([]byte, 4096)
	n, _ := r.Read(b)
	require.NoError(t, r.Close())
	return out, string(b[:n])
}
