package tier_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// TestObjectSlots: tiny objects that wait to be written to a level that is slow, or away, took all records of
// the memory level.
func TestObjectSlots(t *testing.T) {
	m, err := memory.Open(memory.Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20, MaxObjects: 64})
	require.NoError(t, err)
	remote := tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "remote"}))
	remote.Fail(tier.ErrUnavailable)
	s, err := tier.Open(t.Context(), tier.Options{Memory: m, Lower: []tier.Lower{{Level: remote}}})
	require.NoError(t, err)
	lease := func(id string) *tier.StoreLease {
		l, err := s.Lease(context.Background(), tier.LeaseOptions{ID: id})
		require.NoError(t, err)
		return l
	}
	l := lease("w")
	for i := range 300 {
		name := fmt.Sprint(i)
		require.NoError(t, l.Reserve([]tier.Object{{Key: tier.Key{Space: "s", Name: name}, Size: 1}})[0].Err, name)
		require.NoError(t, l.Commit(keys(name))[0])
		l.Unpin(keys(name))
	}
	require.Equal(t, 32, s.State().Backlog, "half of the records")
	l.Release()
	require.Empty(t, tier.Check(s))
	remote.Do(nil)
	left, err := s.Drain(t.Context())
	require.ErrorContains(t, err, "had no room for 268 writes")
	require.Empty(t, left)
	require.NoError(t, s.Close())
	require.NoError(t, m.CheckStructure())
	require.NoError(t, m.Remove())
}
