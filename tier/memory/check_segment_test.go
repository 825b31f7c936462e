//go:build linux

package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	segmentcheck "github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/tier"
)

// What checks segments knows the form of a level's, alive, with leases, and left.
func TestSegmentIsAsItIsChecked(t *testing.T) {
	l := open(t, options(t))
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, put(l, object(name, "parent", 5000)))
	}
	require.NoError(t, put(l, object("empty", "", 0)))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	requirePlaced(t, x.Pin(keys("a")))
	requirePlaced(t, x.Reserve([]tier.Object{object("r", "", 1000)}))
	for range 2 {
		r, err := segmentcheck.Segment(l.o.Name, segmentcheck.Options{Dir: l.o.Dir})
		require.NoError(t, err)
		require.Empty(t, r.Findings)
		require.NoError(t, l.Close())
	}
}
