//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
)

// run runs a command line and returns what it wrote, and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var c commands
	p, err := kong.New(&c, options()...)
	require.NoError(t, err)
	ctx, err := p.Parse(args)
	require.NoError(t, err, "%q", args)
	out := output(t, func() error { err = ctx.Run(); return nil })
	return out, err
}

// store puts two objects into a level.
func store(t *testing.T, l tier.Level) {
	puts := []tier.Put{
		{Object: tier.Object{Key: tier.Key{Space: "model", Name: "parent"}, Size: 5}, Bytes: []byte("bytes")},
		{Object: tier.Object{Key: tier.Key{Space: "model", Name: "a child"}, Size: 3, Parent: "parent", Tenant: "me",
			Cost: 1e9, Note: []byte("note")}, Bytes: []byte("more")[:3]},
		{Object: tier.Object{Key: tier.Key{Space: "other", Name: "x"}}},
	}
	l.Put(t.Context(), puts)
	for _, p := range puts {
		require.NoError(t, p.Err)
	}
}

func TestTierCommandOfAFolder(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	l, err := disk.Open(root, disk.Options{})
	require.NoError(t, err)
	store(t, l)
	checkLevel(t, root, "", l.Close)

	// One file is damaged, and one has no head any more.
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(path, ".ringcache") {
			files = append(files, path)
		}
		return err
	}))
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b[len(b)-1]++
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	out, err := run(t, "tier", "verify", root)
	require.ErrorContains(t, err, "1 objects are damaged")
	require.Contains(t, out, `"parent"`)
	require.FileExists(t, files[0], "to verify removes nothing")
	require.NoError(t, os.WriteFile(files[0], b[:20], 0o600))
	out, err = run(t, "tier", "verify", root, "--json")
	require.Error(t, err)
	require.Contains(t, out, filepath.Base(files[0]), "without a head, the file is named")
	require.Contains(t, out, `"damaged":1`)
	_, err = run(t, "tier", "get", root, "parent", "--space", "model")
	require.ErrorIs(t, err, tier.ErrNotFound)

	_, err = run(t, "tier", "ls", filepath.Join(root, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoDirExists(t, filepath.Join(root, "none"))
	_, err = run(t, "tier", "ls", t.TempDir())
	require.ErrorContains(t, err, "?layout=vllm-ec")
	_, err = run(t, "tier", "ls", root+"?layout=vllm-ec")
	require.ErrorContains(t, err, "native")
}

func TestTierCommandOfASegment(t *testing.T) {
	dir := t.TempDir()
	l, err := memory.Open(memory.Options{Name: "segment", Dir: dir, Size: 1 << 20})
	require.NoError(t, err)
	store(t, l)
	checkLevel(t, "shm:segment", dir, l.Close)
	_, err = run(t, "tier", "ls", "shm:none", "--dir", dir)
	require.ErrorContains(t, err, "none")
}

// checkLevel drives the command for a level with the objects of store, first beside its process, which ends
// by end, and leaves one object.
func checkLevel(t *testing.T, level, dir string, end func() error) {
	flags := []string{level}
	if dir != "" {
		flags = append(flags, "--dir", dir)
	}
	tierOf := func(verb string, args ...string) (string, error) {
		return run(t, append(append([]string{"tier", verb}, flags...), args...)...)
	}
	look := func() {
		out, err := tierOf("ls")
		require.NoError(t, err)
		require.Regexp(t, `model +"a child" +3 B +1s +me +parent`, out)
		require.Contains(t, out, "3 objects, 8 bytes")
		require.Regexp(t, `other +x +0 B +- +- +-\n`, out, "no cost is known")
		out, err = tierOf("ls", "--space", "other", "--json")
		require.NoError(t, err)
		require.JSONEq(t, `{"space":"other","name":"x","size":0}`, out)
		out, err = tierOf("ls", "--space", "model", "--json")
		require.NoError(t, err)
		var o listed
		for line := range strings.Lines(out) {
			require.NoError(t, json.Unmarshal([]byte(line), &o))
			if o.Name == "a child" {
				require.Equal(t, listed{"model", "a child", 3, "parent", "me", 1, "note", ""}, o)
			}
		}
		require.Equal(t, 2, strings.Count(out, "\n"))
		out, err = tierOf("get", "parent", "--space", "model")
		require.NoError(t, err)
		require.Equal(t, "bytes", out)
		file := filepath.Join(t.TempDir(), "out")
		_, err = tierOf("get", "parent", "--space", "model", "-o", file)
		require.NoError(t, err)
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "bytes", string(b))
		_, err = tierOf("get", "parent", "--space", "model", "-o", file)
		require.ErrorIs(t, err, os.ErrExist)
		_, err = tierOf("get", "parent", "--space", "other")
		require.ErrorIs(t, err, tier.ErrNotFound)
		out, err = tierOf("verify")
		require.NoError(t, err)
		require.Equal(t, "3 objects with 8 bytes read, 0 damaged\n", out)
	}
	look()
	_, err := tierOf("rm", "parent", "--space", "model")
	require.Error(t, err, "its process lives")
	look()
	require.NoError(t, end())
	look()

	_, err = tierOf("rm", "--space", "model")
	require.ErrorContains(t, err, "--all")
	_, err = tierOf("rm", "x")
	require.ErrorContains(t, err, "--space")
	out, err := tierOf("rm", "x", "none", "--space", "other")
	require.ErrorContains(t, err, "1 objects were not removed")
	require.Contains(t, out, `"none"`)
	require.Contains(t, out, "1 objects removed")
	out, err = tierOf("rm", "a child", "--space", "model", "--json")
	require.NoError(t, err)
	require.JSONEq(t, `{"space":"model","name":"a child","size":0}`, out)
	out, err = tierOf("ls", "--json")
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count([]byte(out), []byte("\n")))
	require.Contains(t, out, "parent")
}

func TestTierCommandOfARedis(t *testing.T) {
	server := redistest.Start(t)
	url := "redis://" + server.Addr() + "?timeout=1m" // a busy machine may need that
	l, err := redis.Open(t.Context(), redis.Options{URL: url})
	require.NoError(t, err)
	store(t, l)
	require.NoError(t, l.Close())
	out, err := run(t, "tier", "ls", url)
	require.NoError(t, err)
	require.Regexp(t, `model +"a child" +3 B +1s +me +parent`, out)
	out, err = run(t, "tier", "get", url, "parent", "--space", "model")
	require.NoError(t, err)
	require.Equal(t, "bytes", out)
	out, err = run(t, "tier", "verify", url)
	require.NoError(t, err)
	require.Equal(t, "3 objects with 8 bytes read, 0 damaged\n", out)
	out, err = run(t, "tier", "rm", url, "--space", "model", "--all")
	require.NoError(t, err)
	require.Equal(t, "2 objects removed\n", out)
	out, err = run(t, "tier", "ls", url, "--json")
	require.NoError(t, err)
	require.JSONEq(t, `{"space":"other","name":"x","size":0}`, out)

	server.Kill()
	_, err = run(t, "tier", "ls", url)
	require.ErrorIs(t, err, tier.ErrUnavailable)
}
