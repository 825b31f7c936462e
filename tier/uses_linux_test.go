package tier_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// TestWriteBackIsNoUse: the store pinned an object to write it back, pinned it again to write it, and read it
// for its checksum. Eviction took that for three uses, and kept what nobody had asked for longer than what
// came after it and was not written back.
func TestWriteBackIsNoUse(t *testing.T) {
	m, err := memory.Open(memory.Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20})
	require.NoError(t, err)
	lower := tiertest.NewMap(tiertest.MapOptions{Name: "lower"})
	s, err := tier.Open(t.Context(), tier.Options{Memory: m, Lower: []tier.Lower{{Level: lower}}})
	require.NoError(t, err)
	const size = 16 << 10
	store := func(lease tier.Lease, name string) {
		require.NoError(t, lease.Reserve([]tier.Object{object(name, "", size)})[0].Err, name)
		require.NoError(t, lease.Commit(keys(name))[0])
		lease.Unpin(keys(name))
	}
	through, err := s.Lease(t.Context(), tier.LeaseOptions{ID: "through the store"})
	require.NoError(t, err)
	var first []string
	for i := range 30 {
		first = append(first, fmt.Sprint("first ", i))
		store(through, first[i])
	}
	through.Release()
	_, err = s.Drain(t.Context())
	require.NoError(t, err)
	only, err := m.Lease(t.Context(), tier.LeaseOptions{ID: "memory alone"})
	require.NoError(t, err)
	for i := range 200 {
		store(only, fmt.Sprint("scan ", i))
	}
	only.Release()
	for i, st := range m.Stat(t.Context(), keys(first...)) {
		assert.ErrorIs(t, st.Err, tier.ErrNotFound, first[i])
	}
	require.Empty(t, tier.Check(s))
	require.NoError(t, s.Close())
	require.NoError(t, m.CheckStructure())
	require.NoError(t, m.Remove())
}
