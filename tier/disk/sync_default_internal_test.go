package disk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// otherSummed is another layout whose files have checksums.
type otherSummed struct{ Native }

// TestOnlyFilesWithAChecksumAreNotSynced: a root of the layout lmcache that was not shared was not synced, so that a
// power failure could leave a torn file of the right length, which every read then believed.
func TestOnlyFilesWithAChecksumAreNotSynced(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want Sync
	}{
		{Options{}, SyncNever},
		{Options{Layout: Native{}}, SyncNever},
		{Options{Layout: otherSummed{}}, SyncNever},
		{Options{Shared: true}, SyncFile},
		{Options{Layout: LMCache{}, Space: "s"}, SyncFile},
		{Options{Layout: LMCache{}, Space: "s", Sync: SyncNever}, SyncNever},
	} {
		require.Equal(t, c.want, c.o.withDefaults().Sync, "%+v", c.o)
	}
}
