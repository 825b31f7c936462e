package shmfile

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever has the lock of the folder may allocate for long: a large segment, or a
// busy machine.
func TestAllocationWaitsForALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		other, err := os.Open(dir)
		require.NoError(t, err)
		ok, err := TryLock(other)
		require.NoError(t, err)
		require.True(t, ok)
		time.AfterFunc(time.Minute, func() { _ = Unlock(other) })
		began := time.Now()
		unlock := lockFolder(dir)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		ok, err = TryLock(other)
		require.NoError(t, err)
		require.False(t, ok, "it has the lock")
		unlock()
		ok, err = TryLock(other)
		require.NoError(t, err)
		require.True(t, ok)

		// Nothing depends on the lock, so whoever holds it for ever blocks nobody.
		began = time.Now()
		lockFolder(dir)()
		require.Equal(t, folderPatience, time.Since(began).Round(time.Second))
		lockFolder(dir + "/none")()
		require.NoError(t, other.Close())
	})
}
