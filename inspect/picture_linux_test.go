package inspect_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

var updatePicture = flag.Bool("update-picture", false, "TestPictureOfASegment draws docs/pictures/segment.svg anew")

// TestPictureOfASegment: the picture in docs/how-it-works.md is what `ringcache map --svg` draws of a daemon's segment, with a
// lease that has pinned four objects and writes two more, and others that may be evicted.
func TestPictureOfASegment(t *testing.T) {
	dir := t.TempDir()
	l, err := memory.Open(memory.Options{Name: "ringcache", Dir: dir, Size: 1 << 20, Owner: "ringcache serve"})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	x, err := l.Lease(ctx, tier.LeaseOptions{ID: "ringcache/session/lease", Owner: "4711 99 vllm 0.33.0 worker 0", Until: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	var all []tier.Object
	for i := range 14 {
		all = append(all, tier.Object{Key: key(fmt.Sprint("output-", i)), Size: int64(20<<10 + i%5*14<<10)})
	}
	for _, p := range x.Reserve(all) {
		require.NoError(t, p.Err)
	}
	var stored []tier.Key
	for _, o := range all[:12] {
		stored = append(stored, o.Key)
	}
	for _, err := range x.Commit(stored) {
		require.NoError(t, err)
	}
	x.Unpin(stored[4:])
	require.NoError(t, l.Delete(ctx, []tier.Key{key("output-6")})[0]) // so that a place in between is free
	require.NoError(t, l.CheckStructure())
	m, err := open(t, dir, "ringcache").Map(8 * 64)
	require.NoError(t, err)
	var picture bytes.Buffer
	require.NoError(t, m.SVG(&picture))

	path := filepath.Join("..", "docs", "pictures", "segment.svg")
	if *updatePicture {
		require.NoError(t, os.WriteFile(path, picture.Bytes(), 0o644))
	}
	drawn, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, picture.String(), string(drawn), "go test ./inspect -run TestPictureOfASegment -update-picture draws it anew")
}
