//go:build linux

package segment_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
)

// TestAdoptAdvisesWriters: the texts of Adopt are for those who write.
func TestAdoptAdvisesWriters(t *testing.T) {
	dir := t.TempDir()
	o := abandoned(t, dir, "a", "label")
	changed := o
	changed.RingSize += 64
	_, err := segment.Adopt(changed)
	require.ErrorIs(t, err, segment.ErrSize)
	for _, part := range []string{"4096 and vLLM 0.33.0", "ringcache sweep a --any-owner --remove", "an earlier writer left"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "reader")
	_, err = segment.Attach(changed)
	require.ErrorContains(t, err, "writer and reader must agree", "this one is for readers")

	o.Name = "b"
	_, err = segment.Adopt(o)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "b; create it")
	require.NotContains(t, err.Error(), "reader")
}
