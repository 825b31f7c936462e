//go:build linux

package check_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/objstore/internal/objtest"
)

// TestEarlierReleases: nothing is wrong with what writers of the releases before left, which sampled payloads
// in another way; a payload that changed is found.
func TestEarlierReleases(t *testing.T) {
	for release, layout := range map[string]int{"0796503": 1, "f5592f0": 2} {
		t.Run(release, func(t *testing.T) {
			dir, handles, version := objtest.Left(t, "../testdata", release)
			require.Equal(t, layout, version)
			r, err := check.Segment("s", check.Options{Dir: dir})
			require.NoError(t, err)
			require.Empty(t, r.Findings)
			require.Equal(t, []int{layout, 4, 0, 1}, []int{r.Layout, r.Chunks, r.Readers, r.DeadReaders})

			// Behind the first 4 KiB of a page, where layout 3 has no sample.
			file := filepath.Join(dir, "s")
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			b[32+int(handles["large"].Address)+3*4096+1000]++
			require.NoError(t, os.WriteFile(file, b, 0o600)) // the same inode
			r, err = check.Segment("s", check.Options{Dir: dir})
			require.NoError(t, err)
			require.Len(t, r.Findings, 1)
			require.Contains(t, r.Findings[0].What, "checksum of the payload")
		})
	}
}
