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
	l.Release()
	require.Equal(t, int64(32), s.State().BacklogBytes, "of half of the records")
	require.Empty(t, tier.Check(s))
	there := m.Usage().Objects
	remote.Do(nil)
	left, err := s.Drain(t.Context())
	require.ErrorContains(t, err, fmt.Sprintf("had no room for %d writes", 300-there))
	require.Empty(t, left)
	require.Equal(t, there, remote.Usage().Objects)
	require.NoError(t, s.Close())
	require.NoError(t, m.CheckStructure())
	require.NoError(t, m.Remove())
}
