package mmcache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A frontend that verifies its keys runs for months, and sees new ones all the time.
func TestContentsOfABoundedNumberOfKeysAreRemembered(t *testing.T) {
	c := newContents()
	for i := range mostContents + 100 {
		require.False(t, c.changed(fmt.Sprint(i), 1))
	}
	require.Equal(t, mostContents, len(c.sums))
	require.False(t, c.changed("last", 1))
	require.True(t, c.changed("last", 2), "a new one takes the place of any other")
	require.Equal(t, mostContents, len(c.sums))
}
