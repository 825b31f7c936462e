package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/shmring"
)

// atLoad makes f be called before each load of a word of a segment by whoever has it mapped as m, until the test ends.
func atLoad(t *testing.T, m []byte, word int, f func()) {
	t.Helper()
	mem.Watch(func(a mem.Access, w []byte) {
		if off, ok := mem.Offset(m, mem.Addr(w)); ok && off == word && a == mem.Loads {
			f()
		}
	})
	t.Cleanup(func() { mem.Watch(nil) })
}

// A reader compares the id once more when it has decoded the object: who overwrites a chunk takes the id away first.
func TestReaderThatIsOvertakenWhileItDecodesFails(t *testing.T) {
	failpoint.Need(t)
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1})
			r := begin(t, s, "r")
			h, err := r.Put("a", image(600, 1))
			require.NoError(t, err)
			id := s.Segment().Ring()[h.Address:]
			overtaken := false
			// The id is right when the reader looks at it, and another's when it looks at the size.
			atLoad(t, s.mem, len(s.mem)-4096+int(h.Address)+4, func() {
				overtaken = true
				mem.Store32(id, h.ID+1)
			})
			v, err := s.readers[0].Get("a", h)
			mem.Watch(nil)
			mem.Store32(id, h.ID)
			require.True(t, overtaken)
			require.ErrorIs(t, err, ErrStale)
			require.Nil(t, v)
			open, _ := s.readers[0].Views()
			require.Zero(t, open)
			s.readAll(t, h, "a")
			r.Rollback()
		})
	}
}

// The writer takes the id of a chunk away for a moment while it looks for holds. An id that means to every reader that the
// chunk is gone ends a view also of a reader that holds it.
func TestHeldViewOfAChunkThatIsGoneIsStale(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	v, err := r.Get("a", h)
	require.NoError(t, err)
	id := w.Segment().Ring()[h.Address:]
	mem.Store32(id, shmring.DeadID)
	require.NoError(t, v.Check(), "the writer will find the hold")
	mem.Store32(id, shmring.GoneID)
	require.ErrorIs(t, v.Check(), ErrStale)
	_, err = v.Clone()
	require.ErrorIs(t, err, ErrStale)
	mem.Store32(id, h.ID)
	require.NoError(t, v.Check())
	require.NoError(t, v.Release())
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
}
