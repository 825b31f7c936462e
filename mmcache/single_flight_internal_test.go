package mmcache

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInvalidatedItemIsNotTakenFromItsBuild: an item is cached a moment before its build ends. A
// request that began after Invalidate, within that moment, got the invalidated item from the build.
// TestCachesAreLinearizable in fuzz/linear found it.
func TestInvalidatedItemIsNotTakenFromItsBuild(t *testing.T) {
	var f builds
	first, leads := f.join("a", "")
	require.True(t, leads)
	again, leads := f.join("a", "")
	require.False(t, leads)
	require.Same(t, first, again)

	f.detach("a")
	f.detach("another")
	second, leads := f.join("a", "")
	require.True(t, leads, "whoever comes after Invalidate makes the item")
	failed := errors.New("failed")
	f.end("a", first, entry{}, failed)
	<-again.done
	require.ErrorIs(t, again.err, failed, "whoever was there before waits for it as ever")
	joined, leads := f.join("a", "")
	require.False(t, leads, "the second build is still there")
	require.Same(t, second, joined)
	f.end("a", second, entry{}, failed)
	require.Empty(t, f.byKey)
}
