package registry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// TestRecentUse: what is older than five minutes goes, in steps.
func TestRecentUse(t *testing.T) {
	var r recent
	is := func(want Use, of, at time.Duration) {
		t.Helper()
		sum, seconds := r.sum(at)
		require.Equal(t, want, sum)
		require.Equal(t, of, seconds)
	}
	is(Use{}, 0, 0)
	r.add(0, Use{Hits: 1})
	r.add(9*time.Second, Use{Hits: 2, Misses: 1})
	r.add(100*time.Second, Use{Stored: 5})
	is(Use{Hits: 3, Misses: 1, Stored: 5}, 101*time.Second, 101*time.Second)
	is(Use{Hits: 3, Misses: 1, Stored: 5}, 299*time.Second, 299*time.Second)
	is(Use{Stored: 5}, 290*time.Second, 300*time.Second)
	r.add(301*time.Second, Use{Hits: 7})
	is(Use{Hits: 7, Stored: 5}, 295*time.Second, 305*time.Second)
	is(Use{}, 295*time.Second, 2005*time.Second)
}

// TestHoldings: who holds most comes first, also without a connection, and a session is described by counts alone.
func TestHoldings(t *testing.T) {
	b := newBed(t, ordinary)
	small, large := b.user(process.Unknown(), "small"), b.user(process.Unknown(), "large")
	b.user(process.Unknown(), "none").Count("space", Use{Hits: 3}, false)
	for u, sizes := range map[*Session][]int64{small: {10}, large: {200, 100}} {
		for i, n := range sizes {
			_, err := u.Reserve([]string{"l", "m"}[i], []tier.Object{{Key: key(u.s.key + string('a'+rune(i))), Size: n}}, time.Hour)
			require.NoError(t, err)
		}
	}
	small.Leave()
	got := b.registry.Holdings(10)
	require.Len(t, got, 3)
	for i, want := range []Holding{
		{Visit: Visit{Session: "large"}, Connected: true, Leases: 2, Objects: 2, Bytes: 300},
		{Visit: Visit{Session: "small"}, Leases: 1, Objects: 1, Bytes: 10},
		{Visit: Visit{Session: "none", Space: "space", Use: Use{Hits: 3}}, Connected: true},
	} {
		require.NotZero(t, got[i].Since)
		want.Protocol, want.Label, want.Since, want.Last = "test", "test", got[i].Since, got[i].Last
		require.Equal(t, want, got[i])
	}
	require.Equal(t, got[:2], b.registry.Holdings(2))
	b.reopen()
	for _, x := range b.registry.Holdings(10) {
		require.True(t, x.Waiting)
		require.Contains(t, []int64{300, 10}, x.Bytes)
	}
}
