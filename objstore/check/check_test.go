//go:build linux

package check_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

func requireClean(t *testing.T, r *check.Report, chunks int) {
	t.Helper()
	require.Empty(t, r.Findings)
	require.Equal(t, chunks, r.Chunks)
	require.Zero(t, r.Busy)
}

func TestCleanSegments(t *testing.T) {
	for _, version := range []string{"0.11.1", "0.16.0", "0.31.0", "0.33.0"} {
		t.Run("pool "+version, func(t *testing.T) {
			_, l := store(t, pool, version)
			r := l.check(check.Options{})
			requireClean(t, r, len(l.handles))
			require.True(t, r.Alive)
			require.Equal(t, os.Getpid(), r.PID)
			require.Equal(t, "pool", r.Policy)
			require.Equal(t, version, r.Format)
			require.Greater(t, r.Bytes, int64(8000))
			requireClean(t, l.check(check.Options{Handles: l.handles}), 2*len(l.handles))

			reader, err := objstore.Open(name, objstore.ReaderOptions{Dir: l.dir, RingSize: ringSize, Readers: 1, Generation: generation(t, version)})
			require.NoError(t, err)
			require.Equal(t, 1, l.check(check.Options{}).Readers)
			require.NoError(t, reader.Close())
			require.Zero(t, l.check(check.Options{}).Readers)
		})
		t.Run("fifo "+version, func(t *testing.T) {
			_, l := store(t, fifo, version)
			r := l.check(check.Options{})
			requireClean(t, r, 0)
			require.Equal(t, "fifo", r.Policy)
			requireClean(t, l.check(check.Options{Handles: l.handles}), len(l.handles))
		})
		t.Run("foreign "+version, func(t *testing.T) {
			_, l := store(t, fifo, version)
			require.NoError(t, os.Remove(l.path(".ctl")))
			_, err := check.Segment(name, check.Options{Dir: l.dir})
			require.ErrorIs(t, err, segment.ErrForeign)
			require.ErrorContains(t, err, "in the memory of the process that wrote it")
			r := l.check(check.Options{Handles: l.handles, Generation: generation(t, version)})
			requireClean(t, r, len(l.handles))
			require.Equal(t, "foreign", r.Policy)
			requireClean(t, l.check(check.Options{Handles: l.handles, Generation: generation(t, version), RingSize: ringSize}), len(l.handles))
		})
	}
	for _, align := range []int{64, 4096} {
		t.Run(fmt.Sprint("opaque ", align), func(t *testing.T) {
			requireClean(t, opaque(t, align).check(check.Options{}), 5)
		})
	}
	t.Run("orphan", func(t *testing.T) {
		r := orphan(t, "0.33.0").check(check.Options{})
		requireClean(t, r, 4)
		require.False(t, r.Alive)
	})
	_, err := check.Segment("nobody", check.Options{Dir: t.TempDir(), Handles: []serde.Address{{}}})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = check.Segment("nobody", check.Options{Dir: t.TempDir()})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReportIsJSON(t *testing.T) {
	l := orphan(t, "0.33.0")
	l.change(".ctl", func(b []byte) { b[offStates+60]++ })
	b, err := json.Marshal(l.check(check.Options{}))
	require.NoError(t, err)
	require.Contains(t, string(b), `"findings":[{"file":"seg.ctl","offset":1084,"what":"checksum of state record 0"`)
}

func TestUnknownReleaseIsAsked(t *testing.T) {
	l := orphan(t, "0.33.0")
	l.change(".ctl", func(b []byte) {
		copy(b[64:], "9.99.0")
		seal(b[:156])
	})
	_, err := check.Segment(name, check.Options{Dir: l.dir})
	require.ErrorContains(t, err, "9.99.0")
	requireClean(t, l.check(check.Options{Generation: generation(t, "0.33.0")}), 4)
}
