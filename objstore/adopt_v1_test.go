//go:build linux

package objstore

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/objstore/internal/objtest"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// layout1 puts the segment of a writer of layout 1 into a folder: testdata has what
// it left when it was killed. Only the segment's inode is another here.
func layout1(t *testing.T) (o Options, handles map[string]serde.Address) {
	t.Helper()
	o = Options{Name: "v1", Dir: t.TempDir(), RingSize: 16 << 10, MaxObjectSize: 8 << 10, Readers: 1, QuarantineTTL: -1}
	objtest.Unpack(t, "testdata/sidecar-v1", filepath.Join(o.Dir, o.Name))
	b, err := os.ReadFile("testdata/sidecar-v1.json")
	require.NoError(t, err)
	var stored map[string]struct {
		Address   uint64
		ID        uint32
		Signature []byte
	}
	require.NoError(t, json.Unmarshal(b, &stored))
	handles = make(map[string]serde.Address)
	for key, h := range stored {
		handles[key] = serde.Address{Address: h.Address, ID: h.ID, Signature: serde.Signature(h.Signature)}
	}
	return o, handles
}

// TestAdoptLayout1: what a writer of layout 1 left is adopted, and stays of layout 1,
// so that readers and writers of the release that made it can go on with it.
func TestAdoptLayout1(t *testing.T) {
	o, handles := layout1(t)
	for round := range 3 {
		w, a, err := adoptPool(o)
		require.NoError(t, err)
		// The first one had set its state once, so that an epoch is skipped.
		require.Equal(t, shmstore.Adoption{Kept: 3, InUse: 2, Clean: round == 2, Epoch: a.Epoch}, a, "round %d", round)
		require.Equal(t, 1, sidecar.Of(w.Segment()).Layout())
		require.NoError(t, w.CheckStructure())
		r, err := Open(o.Name, ReaderOptions{Dir: o.Dir, RingSize: o.RingSize, Readers: 1})
		require.NoError(t, err)
		require.True(t, r.Protected())
		for i, key := range []string{"needed", "idle", "replaced"} {
			v, err := r.Get(key, handles[key])
			require.NoError(t, err, key)
			require.Equal(t, bytes.Repeat([]byte{byte('a' + i)}, 1000), v.Value().(*serde.Tensor).Data)
			require.NoError(t, v.Check())
			require.NoError(t, v.Release())
		}
		_, err = r.Get("gone", handles["gone"])
		require.ErrorIs(t, err, ErrStale)
		require.True(t, w.Cached("needed"))
		require.False(t, w.Cached("replaced"))
		next := unleased(t, w, "new", 1000, 'x')
		require.Greater(t, next.ID, handles["gone"].ID)
		ok, err := w.Evict("needed")
		require.NoError(t, err)
		require.False(t, ok)
		_, err = w.Evict("new")
		require.NoError(t, err)
		require.NoError(t, w.CheckStructure())
		require.NoError(t, r.Close())
		switch round {
		case 0:
			abandon(t, w)
		case 1:
			require.NoError(t, w.Detach())
		default:
			w.Fence().Passed()
			require.Zero(t, used(t, w))
			require.NoError(t, w.Close())
		}
	}
}
