package sidecar_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sidecar"
)

// TestTwoLooksAreNoWriter: processes that ask at the same time whether a writer lives do not take each other
// for it.
func TestTwoLooksAreNoWriter(t *testing.T) {
	dir := t.TempDir()
	seg, err := os.Create(dir + "/seg")
	require.NoError(t, err)
	defer seg.Close()
	w, err := sidecar.Create(dir, "seg", sidecar.Options{Policy: sidecar.Pool, Objects: 4}, seg)
	require.NoError(t, err)
	slot, err := w.TakeSlot(4711)
	require.NoError(t, err)
	for _, id := range []uint32{7, 9} {
		_, ok := slot.Hold(id)
		require.True(t, ok)
	}
	one, err := sidecar.OpenToLook(dir, "seg")
	require.NoError(t, err)
	defer one.Close()
	alive, err := one.Alive()
	require.NoError(t, err)
	require.True(t, alive)
	require.Equal(t, []sidecar.Reader{{PID: 4711, Alive: true, Holds: []uint32{7, 9}}}, one.Readers())
	require.NoError(t, w.Close())
	require.Equal(t, []sidecar.Reader{{PID: 4711, Alive: false, Holds: []uint32{7, 9}}}, one.Readers())

	var looks sync.WaitGroup
	for range 8 {
		looks.Go(func() {
			f, err := sidecar.OpenToLook(dir, "seg")
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			for range 1000 {
				if alive, err := f.Alive(); alive || err != nil {
					t.Errorf("a writer where there is none: %v", err)
					return
				}
			}
		})
	}
	looks.Wait()
}
