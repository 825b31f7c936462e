//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

func TestTierCopy(t *testing.T) {
	dir := t.TempDir()
	folder, second := filepath.Join(dir, "folder"), filepath.Join(dir, "new", "second")
	m, err := memory.Open(memory.Options{Name: "segment", Dir: dir, Size: 1 << 20})
	require.NoError(t, err)
	store(t, m)
	server := redistest.Start(t)
	url := "redis://" + server.Addr() + "?timeout=1m"

	// From a segment that is served, to a folder that is not there, to a Redis, to another folder.
	out, err := run(t, "tier", "copy", "shm:segment", folder, "--dir", dir)
	require.NoError(t, err)
	require.Equal(t, "3 objects copied (8 bytes), 0 there already, 0 failed\n", out)
	out, err = run(t, "tier", "copy", folder, url, "--space", "model")
	require.NoError(t, err)
	require.Equal(t, "2 objects copied (8 bytes), 0 there already, 0 failed\n", out)
	out, err = run(t, "tier", "copy", folder, url, "--json")
	require.NoError(t, err)
	require.JSONEq(t, `{"copied":1,"bytes":0,"there":2,"failed":0}`, out)
	out, err = run(t, "tier", "copy", url, second)
	require.NoError(t, err)
	require.Equal(t, "3 objects copied (8 bytes), 0 there already, 0 failed\n", out)
	out, err = run(t, "tier", "ls", second)
	require.NoError(t, err)
	require.Regexp(t, `model +"a child" +3 B +1s +me +parent`, out)

	// To a segment that is served, or is not there.
	_, err = run(t, "tier", "copy", folder, "shm:segment", "--dir", dir)
	require.Error(t, err)
	require.NoError(t, m.Close())
	_, err = run(t, "tier", "copy", folder, "shm:none", "--dir", dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	out, err = run(t, "tier", "copy", folder, "shm:segment", "--dir", dir)
	require.NoError(t, err)
	require.Equal(t, "0 objects copied (0 bytes), 3 there already, 0 failed\n", out)

	// What is not there, or is no place for objects.
	_, err = run(t, "tier", "copy", filepath.Join(dir, "none"), folder)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	_, err = run(t, "tier", "copy", folder, dir)
	require.ErrorContains(t, err, "is no root, and not empty")
	server.Kill()
	_, err = run(t, "tier", "copy", folder, url)
	require.ErrorIs(t, err, tier.ErrUnavailable)
}

// TestTierCopyFails: what is damaged, and what has no room, is named, and the status is 1.
func TestTierCopyFails(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	d, err := disk.Open(folder, disk.Options{})
	require.NoError(t, err)
	puts := make([]tier.Put, 200)
	for i := range puts {
		puts[i] = tier.Put{Object: tier.Object{Key: tier.Key{Space: "s", Name: fmt.Sprint("o", i)}, Size: 10_000},
			Bytes: make([]byte, 10_000)}
	}
	d.Put(t.Context(), puts)
	require.NoError(t, puts[0].Err)
	require.NoError(t, d.Close())
	m, err := memory.Open(memory.Options{Name: "small", Dir: dir, Size: 1 << 20})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	out, err := run(t, "tier", "copy", folder, "shm:small", "--dir", dir)
	require.ErrorContains(t, err, "shm:small lacks ")
	require.Contains(t, out, "is the level too small?")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	sum := lines[len(lines)-1]
	var copied, there, failed int
	var size float64
	_, err = fmt.Sscanf(sum, "%d objects copied (%f KiB), %d there already, %d failed", &copied, &size, &there, &failed)
	require.NoError(t, err, sum)
	require.Equal(t, 200, copied+failed)
	require.Equal(t, failed, len(lines)-1, "one line each")
	out, err = run(t, "tier", "ls", "shm:small", "--dir", dir, "--json")
	require.NoError(t, err)
	require.Equal(t, copied, strings.Count(out, "\n"), "what is counted is there")
}

// TestTierCopyOfATornFolder: a file that is torn is in no list, and TO lacks its object.
func TestTierCopyOfATornFolder(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	d, err := disk.Open(folder, disk.Options{})
	require.NoError(t, err)
	const name = "bidi\u202eevil\u009b31m"
	for _, n := range []string{"whole", "torn", name} {
		p := []tier.Put{{Object: tier.Object{Key: tier.Key{Space: "s", Name: n}, Size: 1000},
			Bytes: make([]byte, 1000)}}
		d.Put(t.Context(), p)
		require.NoError(t, p[0].Err)
	}
	require.NoError(t, d.Close())
	at := func(n string) string {
		p, err := disk.Native{}.Path(tier.Key{Space: "s", Name: n})
		require.NoError(t, err)
		return filepath.Join(folder, p)
	}
	require.NoError(t, os.Truncate(at("torn"), 40))
	b, err := os.ReadFile(at(name))
	require.NoError(t, err)
	b[len(b)-1] ^= 1
	require.NoError(t, os.WriteFile(at(name), b, 0o600))
	for _, args := range [][]string{nil, {"--json"}} {
		out, err := run(t, append([]string{"tier", "copy", folder, filepath.Join(dir, "second")}, args...)...)
		require.ErrorContains(t, err, "lacks 1 objects")
		require.Contains(t, out, "evil", "what is damaged is named")
		require.NotContains(t, out, "\u202e")
		require.NotContains(t, out, "\u009b")
	}
	require.NoError(t, os.Remove(at(name)))
	out, err := run(t, "tier", "copy", folder, filepath.Join(dir, "second"))
	require.ErrorContains(t, err, "1 files of "+folder+" were not copied: 1 are damaged")
	require.Equal(t, "0 objects copied (0 bytes), 1 there already, 0 failed\n", out)
}
