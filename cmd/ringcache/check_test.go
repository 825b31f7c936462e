package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
)

// checkOutput runs `ringcache check` and returns what it printed, and its error.
func checkOutput(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var c commands
	p, err := kong.New(&c, options()...)
	require.NoError(t, err)
	ctx, err := p.Parse(append([]string{"check"}, args...))
	require.NoError(t, err)
	var failed error
	out := output(t, func() error { failed = ctx.Run(); return nil })
	return out, failed
}

func TestCheckCommand(t *testing.T) {
	dir := t.TempDir()
	tensor := &serde.Tensor{DType: "uint8", Shape: []int{1000}, Data: make([]byte, 1000)}
	create := func(name string, create func(objstore.Options) (objstore.Store, error)) (objstore.Store, serde.Address) {
		w, err := create(objstore.Options{Name: name, Dir: dir, RingSize: 1 << 16, Readers: 1,
			FullSums: name == "pool"})
		require.NoError(t, err)
		r, err := w.Begin("r")
		require.NoError(t, err)
		h, err := r.Put("a", tensor, objstore.PutOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.Abandon()) })
		return w, h
	}
	pool, h := create("pool", func(o objstore.Options) (objstore.Store, error) { return objstore.CreatePool(o) })
	_, first := create("fifo", func(o objstore.Options) (objstore.Store, error) { return objstore.CreateFIFO(o) })

	out, err := checkOutput(t, "pool", "--dir", dir)
	require.NoError(t, err)
	require.Regexp(t, `^pool: pool of 0\.\d+\.\d+, its writer \(pid \d+\) lives: 1 chunks with 1\d\d\d bytes checked, .* 0 findings\n$`, out)
	out, err = checkOutput(t, "fifo", "--dir", dir)
	require.NoError(t, err)
	require.Regexp(t, `^where the chunks .* in the memory of its writer; .*\nfifo: .* 0 findings\n$`, out,
		"the summary is the last line")
	at := fmt.Sprintf("--at=%d:%d", first.Address, first.ID)
	out, err = checkOutput(t, "fifo", "--dir", dir, at, "--size", "65536", "--release", "0.33.0")
	require.NoError(t, err)
	require.Contains(t, out, "1 chunks")

	require.NoError(t, os.Remove(filepath.Join(dir, "fifo.ctl")))
	_, err = checkOutput(t, "fifo", "--dir", dir)
	require.ErrorContains(t, err, "in the memory of the process that wrote it")
	require.ErrorContains(t, err, "see --at")
	out, err = checkOutput(t, "fifo", "--dir", dir, at)
	require.NoError(t, err)
	require.Contains(t, out, "fifo: foreign of 0.")
	out, err = checkOutput(t, "fifo", "--dir", dir, at, "--at", "64:12345")
	require.ErrorContains(t, err, "1 findings")
	require.Contains(t, out, "fifo: offset 96: handle 64:12345: id of the chunk: want 12345, got ")

	pool.Segment().Ring()[h.Address+500] ^= 1
	out, err = checkOutput(t, "pool", "--dir", dir)
	require.ErrorContains(t, err, "pool: 1 findings")
	require.Contains(t, out, "checksum of the payload: want ")
	out, err = checkOutput(t, "pool", "--dir", dir, "--json")
	require.ErrorContains(t, err, "pool: 1 findings")
	var r check.Report
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Len(t, r.Findings, 1)
	pool.Segment().Ring()[h.Address+500] ^= 1

	_, err = checkOutput(t, "nobody", "--dir", dir, at)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = checkOutput(t, "pool", "--dir", dir, "--release", "9.9")
	require.ErrorContains(t, err, "9.9")
	for _, text := range []string{"", "7", "7:", "a:1", "7:1x", "-1:5", "5:2147483648"} {
		require.ErrorContains(t, new(handle).UnmarshalText([]byte(text)), "ADDRESS:ID", text)
	}
}
