package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestShares: however many processes take all that they may have, one after the other, there is some for
// the next one.
func TestShares(t *testing.T) {
	take := func(s share, others int64) int64 {
		mine := int64(0)
		for s.allows(mine, 1, s.total-others-mine-1) {
			mine++
		}
		return mine
	}
	for name, c := range map[string]struct {
		share
		processes int // that find more than one
		first     int64
	}{
		"records of 64 MiB":      {quarter(8192), 20, 2048},
		"leases":                 {quarter(4096), 18, 1024},
		"sessions, connections":  {quarter(1024), 12, 256},
		"half of the bytes":      {share{1 << 19, 1 << 20}, 14, 1 << 19},
		"all of the bytes":       {share{1 << 20, 1 << 20}, 1, 1 << 20},
		"more than there is":     {share{1 << 40, 1 << 20}, 1, 1 << 20},
		"a small part of much":   {share{100, 100_000}, 100, 100},
		"hardly anything at all": {quarter(5), 1, 1},
	} {
		used := int64(0)
		for i := range c.processes {
			n := take(c.share, used)
			if i == 0 {
				require.Equal(t, c.first, n, name)
			}
			require.Positive(t, n, "%s, process %d", name, i)
			used += n
			require.LessOrEqual(t, used, c.total, name)
		}
	}
	few := quarter(5)
	for used := range int64(5) {
		require.True(t, few.allows(0, 1, 4-used), "the first of %d", 5-used)
	}
	require.False(t, few.allows(0, 1, -1))
	require.True(t, few.allows(100, 0, -1), "what costs nothing")
	require.True(t, quarter(0).allows(1<<40, 1, -1), "without a limit")
	require.True(t, share{limit: 10}.allows(9, 1, -1), "which is not shared")
	require.False(t, share{limit: 10}.allows(10, 1, -1))
}

// TestPinAgain: what another lease pins is no more bytes, so their limit does not refuse it; it is charged, and a limit
// of pins is one for it, too.
func TestPinAgain(t *testing.T) {
	limits := ordinary
	limits.Held, limits.Pins = 3000, 12
	b := newBed(t, limits)
	b.put("a", "b")
	u := b.user(process.Unknown(), "session-1")
	pin := func(placed []tier.Placed, err error) (n int) {
		t.Helper()
		require.NoError(t, err)
		for _, p := range placed {
			if p.Err == nil {
				n++
			} else {
				require.ErrorIs(t, p.Err, tier.ErrFull)
			}
		}
		return n
	}
	require.Equal(t, 2, pin(u.Pin("look-up", keys("a", "b"), time.Hour, false)))
	require.Equal(t, 1, pin(u.Pin("load", keys("a", "b"), time.Hour, false)), "within the limit of bytes")
	b.release(u, "load")
	require.Equal(t, 1, pin(u.PinAgain("load", keys("a", "b"), time.Hour)), "within the limit of pins")
	limits.Pins = 0
	b.registry.SetLimits(limits)
	require.Equal(t, 2, pin(u.PinAgain("load", keys("a", "b"), time.Hour)))
	require.EqualValues(t, 4000, b.registry.Counts().Held)
	require.Zero(t, pin(u.Pin("load 2", keys("a"), time.Hour, false)))
	b.release(u, "load", "look-up")
	require.Zero(t, b.registry.Counts().Held)
}
