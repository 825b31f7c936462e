package mmcache

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInvalidatedItemIsNotTakenFromItsFlight: an item is cached a moment before its flight lands. A
// request that began after Invalidate, within that moment, got the invalidated item from the flight.
// TestCachesAreLinearizable in fuzz/linear found it.
func TestInvalidatedItemIsNotTakenFromItsFlight(t *testing.T) {
	var f flights
	first, leads := f.join("a", "")
	require.True(t, leads)
	again, leads := f.join("a", "")
	require.False(t, leads)
	require.Same(t, first, again)

	f.leave("a")
	f.leave("another")
	second, leads := f.join("a", "")
	require.True(t, leads, "whoever comes after Invalidate makes the item")
	failed := errors.New("failed")
	f.land("a", first, entry{}, failed)
	<-again.done
	require.ErrorIs(t, again.err, failed, "whoever was there before waits for it as ever")
	joined, leads := f.join("a", "")
	require.False(t, leads, "the second flight is still there")
	require.Same(t, second, joined)
	f.land("a", second, entry{}, failed)
	require.Empty(t, f.byKey)
}
