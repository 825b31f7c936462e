package objstore

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClockSetBackDoesNotDelayTheCollector: the garbage collector, which ends views that were dropped,
// ran again only when the clock had reached the time of its last run, years later.
func TestClockSetBackDoesNotDelayTheCollector(t *testing.T) {
	r := &Reader{}
	runs := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := uint32(0)
	synctest.Test(t, func(*testing.T) { // each bubble begins at the same time
		time.Sleep(time.Hour)
		r.collect()
		before = runs()
		r.collect()
		require.Equal(t, before, runs(), "once a second is enough")
	})
	synctest.Test(t, func(*testing.T) { r.collect() })
	require.Equal(t, before+1, runs())
}
