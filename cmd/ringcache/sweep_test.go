package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
)

// output runs f and returns what it wrote to stdout.
func output(t *testing.T, f func() error) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	old := os.Stdout
	os.Stdout = w
	done := make(chan string)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, r)
		done <- b.String()
	}()
	err = f()
	os.Stdout = old
	require.NoError(t, w.Close())
	require.NoError(t, err)
	return <-done
}

func TestSweepCommand(t *testing.T) {
	dir := t.TempDir()
	create := func(name, owner string) objstore.Store {
		w, err := objstore.CreatePool(objstore.Options{
			Name: name, Owner: owner, Dir: dir, RingSize: 1000, MaxObjectSize: 500, Readers: 1,
		})
		require.NoError(t, err)
		return w
	}
	alive := create("ring-alive", "me")
	require.NoError(t, create("ring-closed", "me").Detach())
	require.NoError(t, create("ring-other", "other").Detach())
	require.NoError(t, create("elsewhere", "me").Detach())

	out := output(t, sweepCommand{Prefix: "ring-", Owner: "me", Dir: dir}.Run)
	require.Regexp(t, `ring-alive +me +\d+ +\S+ KiB +alive`, out)
	require.Regexp(t, `ring-closed +me +\d+ +\S+ KiB +closed`, out)
	require.NotContains(t, out, "ring-other")
	require.FileExists(t, filepath.Join(dir, "ring-closed"), "it only looked")

	out = output(t, sweepCommand{Prefix: "ring-", Owner: "me", Dir: dir, Remove: true}.Run)
	require.Contains(t, out, "removed")
	require.NoFileExists(t, filepath.Join(dir, "ring-closed"))
	require.NoFileExists(t, filepath.Join(dir, "ring-closed.ctl"))
	out = output(t, sweepCommand{Prefix: "ring-", AnyOwner: true, Dir: dir}.Run)
	require.Contains(t, out, "ring-other")
	require.NotContains(t, out, "ring-closed")
	require.FileExists(t, filepath.Join(dir, "elsewhere"))
	require.NoError(t, alive.Close())

	require.ErrorContains(t, sweepCommand{Dir: dir}.Run(), "Prefix")
}

// TestSweepSaysWhatItHides: without --owner or --any-owner, segments with a label are
// not shown. The command reports how many, and which flag shows them; a sweep that
// thereby looks at nothing fails, since whoever runs it would think that all is clean.
func TestSweepSaysWhatItHides(t *testing.T) {
	dir := t.TempDir()
	for name, owner := range map[string]string{"ring-a": "one", "ring-b": "two", "ring-c": "two"} {
		w, err := objstore.CreatePool(objstore.Options{
			Name: name, Owner: owner, Dir: dir, RingSize: 1000, MaxObjectSize: 500, Readers: 1,
		})
		require.NoError(t, err)
		require.NoError(t, w.Detach())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ring-bad.ctl"), nil, 0o600))

	var err error
	out := output(t, func() error { err = sweepCommand{Prefix: "ring-", Dir: dir, Remove: true}.Run(); return nil })
	require.ErrorContains(t, err, "4 segments")
	require.ErrorContains(t, err, "--any-owner")
	require.ErrorContains(t, err, "--owner")
	require.NotContains(t, out, "ring-a")
	require.FileExists(t, filepath.Join(dir, "ring-a"))

	// Who asks for a label gets it, with a line about the others.
	out = output(t, sweepCommand{Prefix: "ring-", Owner: "two", Dir: dir}.Run)
	require.Contains(t, out, "ring-b")
	require.NotContains(t, out, "ring-a")
	require.Contains(t, out, "2 segments")
	require.Contains(t, out, "--any-owner")
	out = output(t, sweepCommand{Prefix: "ring-", Owner: "nobody", Dir: dir}.Run)
	require.Contains(t, out, "4 segments")

	out = output(t, sweepCommand{Prefix: "ring-", AnyOwner: true, Dir: dir}.Run)
	require.Regexp(t, `ring-bad +- +0 +0 B +damaged`, out)
	require.NotContains(t, out, "--any-owner")
	out = output(t, sweepCommand{Prefix: "ring-", AnyOwner: true, Dir: dir, Remove: true}.Run)
	require.Regexp(t, `ring-bad +- +0 +0 B +damaged, removed`, out)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NotContains(t, output(t, sweepCommand{Prefix: "ring-", Dir: dir}.Run), "segments",
		"nothing is hidden, and that is no error")
}
