//go:build linux

package check_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

const (
	ringSize = 64 << 10
	slots    = 2
	objects  = 16

	// Offsets of docs/format.md, Sidecar.
	offStates = 1024
	offMarks  = 4096
	offSlots  = 8192
	offTable  = offSlots + 2048*slots
)

func image(n int, b byte) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}, Data: bytes.Repeat([]byte{b}, n)},
		Field: serde.Field{Kind: serde.Batched},
	}}}
}

// left is a segment whose writer is gone.
type left struct {
	t       testing.TB
	dir     string
	handles []serde.Address // in a pool: by address
}

const name = "seg"

func (l *left) path(suffix string) string { return filepath.Join(l.dir, name+suffix) }

func (l *left) check(o check.Options) *check.Report {
	l.t.Helper()
	o.Dir = l.dir
	r, err := check.Segment(name, o)
	require.NoError(l.t, err)
	return r
}

// change gives the bytes of a file to f.
func (l *left) change(suffix string, f func(b []byte)) {
	l.t.Helper()
	b, err := os.ReadFile(l.path(suffix))
	require.NoError(l.t, err)
	f(b)
	file, err := os.OpenFile(l.path(suffix), os.O_WRONLY, 0)
	require.NoError(l.t, err)
	_, err = file.WriteAt(b, 0) // in place: the inode is in the header
	require.NoError(l.t, err)
	require.NoError(l.t, file.Close())
}

// entry returns where the table has the object with an id.
func (l *left) entry(id uint32) int {
	l.t.Helper()
	b, err := os.ReadFile(l.path(".ctl"))
	require.NoError(l.t, err)
	for at := offTable; at < len(b); at += 64 {
		if string(b[at:at+8]) != "FREEFREE" && binary.LittleEndian.Uint32(b[at+16:]) == id {
			return at
		}
	}
	require.Fail(l.t, "no entry", id)
	return 0
}

func generation(t testing.TB, version string) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	return g
}

// store makes a store of vLLM's objects with some objects in it.
func store(t testing.TB, create func(objstore.Options) (objstore.Store, error), version string) (objstore.Store, *left) {
	t.Helper()
	l := &left{t: t, dir: t.TempDir()}
	w, err := create(objstore.Options{
		Name: name, Dir: l.dir, RingSize: ringSize, MaxObjectSize: 16 << 10, Readers: 1, Generation: generation(t, version),
		MaxObjects: objects, ReaderSlots: slots, FullSums: true,
	})
	require.NoError(t, err)
	r, err := w.Begin("r")
	require.NoError(t, err)
	for i, n := range []int{100, 3000, 5000, 300} {
		h, err := r.Put(fmt.Sprint("key", i), image(n, byte(i)), objstore.PutOptions{Note: []byte("note")})
		require.NoError(t, err)
		l.handles = append(l.handles, h)
	}
	require.NoError(t, r.Commit())
	slices.SortFunc(l.handles, func(a, b serde.Address) int { return int(a.Address) - int(b.Address) })
	t.Cleanup(func() {
		require.NoError(t, w.CheckStructure())
		require.NoError(t, w.Abandon())
	})
	return w, l
}

func pool(o objstore.Options) (objstore.Store, error) { return objstore.CreatePool(o) }

func fifo(o objstore.Options) (objstore.Store, error) {
	o.MaxObjects, o.ReaderSlots, o.FullSums = 0, 0, false
	return objstore.CreateFIFO(o)
}

// orphan makes the segment of a writer that was killed.
func orphan(t testing.TB, version string) *left {
	t.Helper()
	_, l := store(t, pool, version)
	// Only the copy is changed, so that the writer's own structure stays right.
	other := &left{t: t, dir: t.TempDir(), handles: l.handles}
	copySegment(t, l, other)
	return other
}

// copySegment copies a segment and its sidecar, which names the copy.
func copySegment(t testing.TB, from, to *left) {
	t.Helper()
	for _, suffix := range []string{"", ".ctl"} {
		b, err := os.ReadFile(from.path(suffix))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to.path(suffix), b, 0o600))
	}
	to.change(".ctl", func(b []byte) { identify(t, b, to.path("")) })
}

// opaque makes a store of payloads that are not vLLM's.
func opaque(t testing.TB, align int) *left {
	t.Helper()
	l := &left{t: t, dir: t.TempDir()}
	s, err := shmstore.Create(shmstore.Options{Name: name, Dir: l.dir, Size: ringSize, Align: align, Format: "kv-1", MaxObjects: objects, ReaderSlots: slots})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Abandon()) })
	r, err := s.Begin(shmstore.RequestOptions{ID: "r"})
	require.NoError(t, err)
	for i := range 5 {
		_, err := r.Put(fmt.Sprint("key", i), bytes.Repeat([]byte{1}, 900*i+1), shmstore.PutOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, s.CheckStructure())
	return l
}
