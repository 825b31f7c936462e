package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/shmring/segment"
)

// A writer that is killed just after it published an object, and before it took the key from the one that it replaces,
// leaves two objects of one key. The key is that of the newer one, wherever they are.
func TestAdoptGivesAKeyToTheNewerOfTwoObjects(t *testing.T) {
	failpoint.Need(t)
	for _, newerInFront := range []bool{false, true} {
		o, err := Options{RingSize: 16 << 10, MaxObjectSize: 8 << 10, Readers: 1, QuarantineTTL: -1}.resolve()
		require.NoError(t, err)
		seg, err := segment.Private(nil, segment.Options{RingSize: o.RingSize, DataOffset: o.Generation.DataOffset, Sidecar: &segment.SidecarOptions{
			Pool: true, Format: o.Generation.Version, Readers: 1, Objects: 8, Slots: 1,
		}})
		require.NoError(t, err)
		dead, err := pool.over(seg, o)
		require.NoError(t, err)
		if newerInFront {
			unleased(t, dead, "front", 1000, 'f')
		}
		r := begin(t, dead, "r")
		older, err := r.Put("hot", image(1000, 'o'))
		require.NoError(t, err)
		if newerInFront {
			_, err = dead.Evict("front")
			require.NoError(t, err)
		}
		// It was read so often that it is not used any more.
		dead.change(t, "hot", func(_ *poolObject, reads []byte) { mem.Store32(reads, rebaseAt) })
		killed := false
		defer failpoint.Set(nil)
		failpoint.Set(func(name string) {
			if name != "pool.published" {
				return
			}
			killed = true // the writer goes on only when all is over
			failpoint.Set(nil)
			w, a, err := adoptSegment(seg, o)
			require.NoError(t, err)
			require.Equal(t, 2, a.Kept)
			require.Equal(t, 1, a.InUse, "r may have sent a handle of the older one")
			newer, err := begin(t, w, "adopter's").Lookup("hot")
			require.NoError(t, err)
			require.Greater(t, newer.ID, older.ID)
			require.Equal(t, newerInFront, newer.Address < older.Address)
			require.NoError(t, w.CheckStructure())
			w.Fence().Passed()
			require.Equal(t, 1, w.Len(), "nobody can ask for the older one")
		})
		_, _ = begin(t, dead, "next").Put("hot", image(1000, 'n'))
		require.True(t, killed)
	}
}
