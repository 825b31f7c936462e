package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the readers of an engine that is gone have read does not count for those of the next one.
func TestReadsOfTheOldReadersDoNotCountForTheNewOnes(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 2, TrustCounts: true})
			old := begin(t, s, "old")
			h, err := old.Put("a", image(600, 1))
			require.NoError(t, err)
			require.NoError(t, old.Commit())
			s.readAll(t, h, "a")
			require.NoError(t, s.ResetReaders(0))
			state, err := s.State()
			require.NoError(t, err)
			require.Zero(t, state.Objects[0].Reads)

			next := begin(t, s, "next")
			h, err = next.Lookup("a")
			require.NoError(t, err)
			require.NoError(t, next.Commit())
			read(t, s.readers[0], h, "a")
			next.Abort() // the other has it before it, perhaps
			freed, err := s.FreeUnused()
			require.NoError(t, err)
			require.Empty(t, freed, "one of two has read it")
			read(t, s.readers[1], h, "a")
			freed, err = s.FreeUnused()
			require.NoError(t, err)
			require.Equal(t, []uint32{h.ID}, freed)
		})
	}
}
