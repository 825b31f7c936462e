package shmstore_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

// A look-up that fails because the sidecar is gone gives no handle, so it must leave no lease either.
func TestLookupInATruncatedSidecarLeavesNoLease(t *testing.T) {
	dir := t.TempDir()
	s, err := shmstore.Create(shmstore.Options{Name: "s", Dir: dir, Size: 64 << 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Abandon()) })
	first := begin(t, s, "first")
	put(t, first, "k", 100, 1)
	require.NoError(t, first.Commit())
	first.Finish()
	r := begin(t, s, "r")
	require.NoError(t, os.Truncate(dir+"/s.ctl", 0))
	for range 3 {
		_, err = r.Lookup("k", 1)
		var gone *shmstore.CorruptError
		require.ErrorAs(t, err, &gone)
	}
	st, err := s.Stats()
	require.NoError(t, err)
	require.Zero(t, st.Leases)
	require.Zero(t, st.Leased)
	require.NotContains(t, s.Holders()[0].Keys, "k")
	r.Rollback()
}
