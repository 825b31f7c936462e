package objstore

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// collectUntil runs the garbage collector until it has found what done waits for.
func collectUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			require.FailNow(t, "not recovered", what)
		}
		runtime.GC()
	}
}

// TestDroppedViewsDoNotDisableAReader: a slot has 508 places, and each view that was
// forgotten took one for good.
func TestDroppedViewsDoNotDisableAReader(t *testing.T) {
	w, r, _ := realPool(t, Options{})
	h := unleased(t, w, "a", 500, 7)
	for i := range 600 {
		collectUntil(t, "a place in the slot", func() bool {
			_, err := r.Get(h, "a")
			if err != nil {
				require.ErrorIs(t, err, ErrBusy, "view %d", i)
			}
			return err == nil
		})
	}
	collectUntil(t, "all views", func() bool {
		ok, err := w.Evict("a")
		require.NoError(t, err)
		return ok
	})
	collectUntil(t, "the mapping", func() bool {
		err := r.Close()
		require.True(t, err == nil || errors.Is(err, ErrBusy), "%v", err)
		return err == nil
	})
	require.NoError(t, w.CheckStructure())
	require.NoError(t, w.Close())
}

// TestDroppedViewCountsItsRead: else its chunk, and with FIFO all behind it, would
// never be free.
func TestDroppedViewCountsItsRead(t *testing.T) {
	s := newStore(t, Options{RingSize: 1000, MaxObjectSize: 900, Readers: 1})
	h, err := s.Put("a", image(600, 1))
	require.NoError(t, err)
	_, err = s.readers[0].Get(h, "a")
	require.NoError(t, err)
	collectUntil(t, "the read", func() bool {
		_, err := s.Put("b", image(600, 2))
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
		}
		return err == nil
	})
	collectUntil(t, "the mapping", func() bool { return s.readers[0].Close() == nil })
}
