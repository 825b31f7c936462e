package objstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestResetReadersMakesALaterHandleTheFirst: a handle that waits to be sent while the
// readers are replaced is the first one for the new readers, which do not count its touch.
// Its use counted two reads as before, so a FIFO kept the object for ever.
func TestResetReadersMakesALaterHandleTheFirst(t *testing.T) {
	for _, k := range kinds {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s with %d children", k, n), func(t *testing.T) {
				s := newStoreOf(t, k, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 1, Generation: generation(t, "0.31.0")})
				first := begin(t, s, "first")
				h, err := first.Put("a", image(600, 1))
				require.NoError(t, err)
				require.NoError(t, first.Commit())
				s.readAll(t, h, "a")

				second := begin(t, s, "second")
				h, err = second.Lookup("a")
				require.NoError(t, err)
				require.NoError(t, second.SetUses(h, n))
				require.NoError(t, s.ResetReaders(0))
				require.NoError(t, second.Commit())
				for range n {
					require.NoError(t, s.readers[0].Touch(context.Background(), "a", h))
					s.readAll(t, h, "a")
				}
				state, err := s.State()
				require.NoError(t, err)
				require.Len(t, state.Objects, 1)
				require.Equal(t, state.Objects[0].Uses, state.Objects[0].Reads)
				second.Finish()
				freed, err := s.FreeUnused()
				require.NoError(t, err)
				require.Equal(t, []uint32{h.ID}, freed)
			})
		}
	}
}
