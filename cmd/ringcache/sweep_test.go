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
	create := func(name, owner string) *objstore.Writer {
		w, err := objstore.Create(objstore.Options{
			Name: name, Owner: owner, Dir: dir, RingSize: 1000, MaxObjectSize: 500, Readers: 1, Policy: objstore.Pool,
		})
		require.NoError(t, err)
		return w
	}
	alive := create("ring-alive", "me")
	require.NoError(t, create("ring-orphan", "me").Detach())
	require.NoError(t, create("ring-other", "other").Detach())
	require.NoError(t, create("elsewhere", "me").Detach())

	out := output(t, sweepCommand{Prefix: "ring-", Owner: "me", Dir: dir}.Run)
	require.Regexp(t, `ring-alive +me +\d+ +\d+ +alive`, out)
	require.Regexp(t, `ring-orphan +me +\d+ +\d+ +orphan`, out)
	require.NotContains(t, out, "ring-other")
	require.FileExists(t, filepath.Join(dir, "ring-orphan"), "it only looked")

	out = output(t, sweepCommand{Prefix: "ring-", Owner: "me", Dir: dir, Remove: true}.Run)
	require.Contains(t, out, "removed")
	require.NoFileExists(t, filepath.Join(dir, "ring-orphan"))
	require.NoFileExists(t, filepath.Join(dir, "ring-orphan.ctl"))
	out = output(t, sweepCommand{Prefix: "ring-", AnyOwner: true, Dir: dir}.Run)
	require.Contains(t, out, "ring-other")
	require.NotContains(t, out, "ring-orphan")
	require.FileExists(t, filepath.Join(dir, "elsewhere"))
	require.NoError(t, alive.Close())

	require.ErrorContains(t, sweepCommand{Dir: dir}.Run(), "Prefix")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ring-bad.ctl"), make([]byte, 5000), 0o600))
	_ = output(t, func() error {
		require.ErrorContains(t, sweepCommand{Prefix: "ring-bad", Dir: dir, Remove: true}.Run(), "not a usable sidecar")
		return nil
	})
	require.FileExists(t, filepath.Join(dir, "ring-bad.ctl"), "what can't be judged stays")
}
