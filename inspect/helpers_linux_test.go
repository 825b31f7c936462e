package inspect_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

const (
	ringSize = 64 << 10
	childEnv = "RINGCACHE_TEST_INSPECT_CHILD"
)

// TestMain is also the writer that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	goleak.VerifyTestMain(m)
}

func image(n int, b byte) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: bytes.Repeat([]byte{b}, n)},
		Field: serde.Field{Kind: serde.Batched},
	}}}
}

// options of a store of vLLM's objects.
func options(dir, name string, g *pycompat.Generation) objstore.Options {
	return objstore.Options{
		Name: name, Dir: dir, RingSize: ringSize, MaxObjectSize: 16 << 10, Readers: 1, Generation: g, MaxObjects: 16,
		Owner: "frontend",
	}
}

// fill puts objects into a store, under a request that stays open.
func fill(w objstore.Store) error {
	r, err := w.Begin("r")
	if err != nil {
		return err
	}
	for i, n := range []int{100, 3000, 5000} {
		if _, err := r.Put(fmt.Sprint("key", i), image(n, byte(i)), objstore.PutOptions{}); err != nil {
			return err
		}
	}
	return r.Commit()
}

func key(name string) tier.Key { return tier.Key{Space: "space", Name: name} }

// fillLevel stores an object, and has a lease that pins it and writes another one.
func fillLevel(l *memory.Level) error {
	x, err := l.Lease(ctx, tier.LeaseOptions{
		ID: "ringcache/session/lease", Owner: "4711 99 vllm 0.33.0 worker 0", Until: time.Now().Add(time.Hour),
	})
	if err != nil {
		return err
	}
	objects := []tier.Object{
		{Key: key("pinned"), Size: 3000, Tenant: "team"},
		{Key: key("written"), Size: 2000},
		{Key: key("idle"), Size: 100},
	}
	for _, p := range x.Reserve(objects) {
		if p.Err != nil {
			return p.Err
		}
	}
	if err := x.Commit([]tier.Key{key("pinned"), key("idle")})[0]; err != nil {
		return err
	}
	x.Unpin([]tier.Key{key("idle")})
	return nil
}

// serve makes a pool and a level, and does not end them.
func serve(dir string) error {
	w, err := objstore.CreatePool(options(dir, "pool", nil))
	if err != nil {
		return err
	}
	l, err := memory.Open(memory.Options{Name: "level", Dir: dir, Size: 1 << 20, Owner: "ringcache serve"})
	if err != nil {
		return err
	}
	if err := fillLevel(l); err != nil {
		return err
	}
	return fill(w)
}

// killed has the segments of a process that was killed.
func killed(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 100)
	n, err := out.Read(line)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(line[:n]))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	return dir
}

func open(t testing.TB, dir, name string) *inspect.Segment {
	t.Helper()
	x, err := inspect.Open(name, inspect.Options{Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func summary(t testing.TB, x *inspect.Segment) inspect.Summary {
	t.Helper()
	s, err := x.Summary()
	require.NoError(t, err)
	return s
}

// objects returns what a segment has, by key.
func objects(x *inspect.Segment) map[string]inspect.Object {
	out := map[string]inspect.Object{}
	for o := range x.Objects() {
		out[o.Key] = o
	}
	return out
}

// change gives the bytes of a file to f.
func change(t testing.TB, path string, f func(b []byte)) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f(b)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(b, 0) // in place: the inode is in the header
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// contents returns the bytes of all files of a folder.
func contents(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		out[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
	}
	return out
}

func names(all []inspect.Summary) (out []string) {
	for _, s := range all {
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return out
}
