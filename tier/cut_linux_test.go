package tier_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// cut takes all but a page from the segment of a level, as somebody may who cleans up shared memory.
func cut(t *testing.T, dir string, m *memory.Level) {
	t.Helper()
	require.NoError(t, os.Truncate(filepath.Join(dir, m.Segment().Name), 4096))
}

// TestPutIntoACutSegment: of bytes, and of a stream that is read into the segment.
func TestPutIntoACutSegment(t *testing.T) {
	for _, stream := range []bool{false, true} {
		dir := t.TempDir()
		m := openMemory(t, dir, 4<<20)
		s := openStore(t, tier.Options{Memory: m})
		cut(t, dir, m)
		p := []tier.Put{{Object: object("x", "", 1<<20), Bytes: content("x", 1<<20)}}
		if stream {
			p[0].Bytes, p[0].From = nil, bytes.NewReader(p[0].Bytes)
		}
		s.Put(t.Context(), p)
		require.ErrorIs(t, p[0].Err, tier.ErrUnavailable, "stream %v", stream)
	}
}

// TestWriteFromACutSegment: what is pending is lost with the memory, and the level below stays in use.
func TestWriteFromACutSegment(t *testing.T) {
	dir := t.TempDir()
	m := openMemory(t, dir, 4<<20)
	down := tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Name: "disk"}))
	down.Fail(tier.ErrUnavailable)
	s := openStore(t, tier.Options{Memory: m, Lower: []tier.Lower{{Level: down}}})
	require.NoError(t, put(s, "x", "", 1<<20))
	cut(t, dir, m)
	down.Do(nil)
	_, err := s.Drain(t.Context())
	require.NoError(t, err, "it is given up")
	require.False(t, s.State().Levels[1].Away)
	require.ErrorIs(t, down.Stat(t.Context(), keys("x"))[0].Err, tier.ErrNotFound)
}
