//go:build linux

package memory

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestHeapOfLongTexts: the longest texts of objects do not take as much memory on the heap as the objects
// take in the segment.
func TestHeapOfLongTexts(t *testing.T) {
	const size = 32 << 20
	l := open(t, Options{Name: "level", Dir: t.TempDir(), Size: size})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range size / (8 << 10) {
		require.NoError(t, put(l, tier.Object{
			Key: tier.Key{Space: "s", Name: fmt.Sprint(i, strings.Repeat("x", 1000))}, Parent: fmt.Sprint("p", strings.Repeat("p", 1000)),
			Tenant: strings.Repeat("t", 255), Note: []byte(fmt.Sprint(i, strings.Repeat("n", 4000))),
		}))
	}
	u, took := l.Usage(), heap()-before
	t.Logf("%d objects: %d bytes of the heap", u.Objects, took)
	require.Less(t, took, int64(size/4))
	require.Greater(t, u.Objects, int64(400))
	require.Positive(t, u.Evicted)
}
