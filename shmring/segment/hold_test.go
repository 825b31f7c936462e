//go:build linux

package segment_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
)

// Unlink removes the names at once; after Leave the memory stays until the last hold ends.
func TestLeaveKeepsTheMemoryWhileItIsHeld(t *testing.T) {
	dir := t.TempDir()
	s, err := segment.Create(segment.Options{Name: "s", Dir: dir, RingSize: 4096, Sidecar: &segment.SidecarOptions{Readers: 1}})
	require.NoError(t, err)
	idle := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	require.True(t, idle(s.Idle()))
	require.NoError(t, s.Hold())
	require.NoError(t, s.Hold())
	require.Equal(t, 2, s.Holds())
	wait := s.Idle()
	mem := s.Bytes()
	require.NoError(t, s.Unlink())
	require.NoError(t, s.Leave())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.ErrorIs(t, s.Hold(), fs.ErrClosed)
	require.NoError(t, s.Close())
	mem[100] = 1
	s.Release()
	mem[100] = 2
	require.False(t, idle(wait))
	s.Release()
	require.True(t, idle(wait))
	require.Nil(t, s.Bytes(), "the memory is gone")
	require.NoError(t, s.Leave())
}
