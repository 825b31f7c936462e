package shmstore

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A retired object is worth nothing, whatever became of the sidecar.
func TestRetiredObjectLeavesTheEvictionPolicyWithoutSidecar(t *testing.T) {
	dir := t.TempDir()
	s, err := Create(Options{Name: "s", Dir: dir, Size: 64 << 10})
	require.NoError(t, err)
	r, err := s.Begin(RequestOptions{ID: "r"})
	require.NoError(t, err)
	_, err = r.Put("k", make([]byte, 100), PutOptions{})
	require.NoError(t, err)
	require.NoError(t, os.Truncate(dir+"/s.ctl", 0))
	require.True(t, s.Remove("k"))
	require.Equal(t, 1, s.space.pool.Len())
	for o := range s.space.all() {
		require.Equal(t, retired, o.state)
		require.False(t, o.cached.Live())
	}
	require.NoError(t, s.Abandon())
}
