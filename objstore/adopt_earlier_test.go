//go:build linux

package objstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/objstore/internal/objtest"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// earlier are the commits whose writers left the files testdata/sidecar-COMMIT*, and the sizes of the objects in these.
var (
	earlier        = map[string]int{"0796503": 1, "f5592f0": 2}
	earlierObjects = []struct {
		key string
		n   int
	}{{"small", 1000}, {"page", 6000}, {"large", 100000}, {"needed", 70000}}
)

func earlierOptions(dir string) Options {
	return Options{Name: "s", Dir: dir, RingSize: 512 << 10, MaxObjectSize: 256 << 10, Readers: 1, QuarantineTTL: -1}
}

// TestAdoptEarlierReleases: what a killed writer of an earlier release left is adopted with every object, whatever
// its size, and keeps its version: what is added is adopted too, and a reader that died there has no hold.
func TestAdoptEarlierReleases(t *testing.T) {
	for release, layout := range earlier {
		t.Run(release, func(t *testing.T) {
			dir, handles, version := objtest.Left(t, "testdata", release)
			require.Equal(t, layout, version)
			o := earlierOptions(dir)
			for round := range 3 {
				w, a, err := adoptPool(o)
				require.NoError(t, err)
				require.Equal(t, shmstore.Adoption{Kept: 4 + min(round, 1), InUse: 1, Clean: round == 2, Epoch: a.Epoch}, a, "round %d", round)
				require.Equal(t, layout, sidecar.Of(w.Segment()).Layout())
				require.NoError(t, w.CheckStructure())
				r, err := Open(o.Name, ReaderOptions{Dir: dir, RingSize: o.RingSize, Readers: 1})
				require.NoError(t, err)
				require.True(t, r.Protected())
				for i, object := range earlierObjects {
					h := current(t, w, object.key)
					require.Equal(t, handles[object.key], objtest.Handle{Address: h.Address, ID: h.ID, Signature: h.Signature[:]})
					requireBytes(t, r, object.key, h, object.n, byte('a'+i))
				}
				require.False(t, w.Cached("gone"))
				if round == 0 {
					unleasedTensor(t, w, "new", 80000, 'x')
				}
				requireBytes(t, r, "new", current(t, w, "new"), 80000, 'x')
				v, err := r.Get("page", current(t, w, "page"))
				require.NoError(t, err)
				gone, err := w.Evict("page")
				require.NoError(t, err)
				require.False(t, gone, "it is looked at")
				require.NoError(t, v.Release())
				require.NoError(t, r.Close())
				require.NoError(t, w.CheckStructure())
				switch round {
				case 0:
					abandon(t, w)
				case 1:
					require.NoError(t, w.Detach())
				default:
					require.NoError(t, w.Close())
				}
			}
		})
	}
}

// TestReleasesBeforeRefuse is the reverse: this release refuses the next version as those before refuse this one,
// and the error names the version.
func TestReleasesBeforeRefuse(t *testing.T) {
	o := earlierOptions(t.TempDir())
	w, err := pool.create(o)
	require.NoError(t, err)
	next := sidecar.Of(w.Segment()).Layout() + 1
	require.NoError(t, w.Detach())
	file := filepath.Join(o.Dir, o.Name+sidecar.Suffix)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	binary.LittleEndian.PutUint32(b[8:], uint32(next))
	require.NoError(t, os.WriteFile(file, b, 0o600))
	_, _, adopting := adoptPool(o)
	_, opening := Open(o.Name, ReaderOptions{Dir: o.Dir, RingSize: o.RingSize, Readers: 1})
	for _, err := range []error{adopting, opening} {
		var bad *sidecar.FormatError
		require.True(t, errors.As(err, &bad) && bad.Newer, "%v", err)
		require.ErrorContains(t, err, "layout version 4, this release reads 1 to 3; use the release that made it")
	}
}

func current(t *testing.T, w *writer, key string) serde.Address {
	t.Helper()
	h, ok, err := w.pool.current(key)
	require.NoError(t, err)
	require.True(t, ok, key)
	return h
}

func unleasedTensor(t *testing.T, w *writer, key string, n int, b byte) {
	t.Helper()
	r := begin(t, w, "of "+key)
	_, err := r.Put(key, tensor(n, b))
	require.NoError(t, err)
	r.Rollback()
}

// requireBytes reads a tensor of n bytes b.
func requireBytes(t *testing.T, r *Reader, key string, h serde.Address, n int, b byte) {
	t.Helper()
	v, err := r.Get(key, h)
	require.NoError(t, err, key)
	require.Equal(t, bytes.Repeat([]byte{b}, n), v.Value().(*serde.Tensor).Data)
	require.NoError(t, v.Check())
	require.NoError(t, v.Release())
}
