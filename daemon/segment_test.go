//go:build linux

package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadinessNoticesTheSegmentsRemoval: what cleans shared memory at a logout takes the segment's name. Nobody can map it any more then, though
// the daemon answers as before.
func TestReadinessNoticesTheSegmentsRemoval(t *testing.T) {
	r := testRunner(t)
	path := filepath.Join(r.config.ShmDir, r.config.Name)
	want := func(code int, text string) {
		t.Helper()
		got, body := get(r, "GET", "/readyz")
		require.Equal(t, code, got, body)
		require.Contains(t, body, text)
	}
	want(200, "ready")
	require.NoError(t, os.Rename(path, path+"-away"))
	want(503, "the segment "+r.config.Name+" was removed or replaced: restart the daemon")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	want(503, "the segment "+r.config.Name+" was removed or replaced: restart the daemon")
	require.NoError(t, os.Rename(path+"-away", path))
	want(200, "ready")
}
