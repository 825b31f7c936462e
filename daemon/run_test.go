package daemon

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBallastIsNoPartOfALimitOfMemory: what nobody touches would take 64 MiB of what GOMEMLIMIT gives.
func TestBallastIsNoPartOfALimitOfMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	require.Len(t, newBallast(), ballast)
	debug.SetMemoryLimit(1 << 40)
	require.Empty(t, newBallast())
}
