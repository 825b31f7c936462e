package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// about returns the findings about a setting.
func about(all []Finding, key string) []Finding {
	var some []Finding
	for _, f := range all {
		if f.Key == key {
			some = append(some, f)
		}
	}
	return some
}

func TestHints(t *testing.T) {
	c := testConfig(t)
	for _, h := range c.Hints() {
		require.Equal(t, slog.LevelWarn, h.Level, "%v", h)
		require.NotEmpty(t, h.Text)
	}

	large := c
	large.Size = 1 << 60
	_, err := large.open(t.Context(), quiet(), nil)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, "size: 1048576TiB takes ")
	left, err := os.ReadDir(c.ShmDir)
	require.NoError(t, err)
	require.Empty(t, left)

	many := c
	many.MaxConnections = 1 << 30
	got := about(many.Hints(), "max-connections")
	require.Len(t, got, 1)
	require.Contains(t, got[0].Text, "ulimits: {nofile: ")
	require.Contains(t, got[0].Text, "LimitNOFILE=")

	wide := c
	wide.DiskSize = 1 << 60
	require.Len(t, about(wide.Hints(), "disk-size"), 1)

	require.NoError(t, os.Chmod(filepath.Dir(c.Socket), 0o777))
	require.Len(t, about(c.Hints(), "socket"), 1)
}

// TestSegmentBytesAreEnough: what is foretold is at least what the files take.
func TestSegmentBytesAreEnough(t *testing.T) {
	for _, size := range []int64{1 << 20, 64 << 20} {
		c := testConfig(t)
		c.Disk, c.Size = "", size
		r := newRunner(RunOptions{Config: c})
		l, err := c.open(t.Context(), r.log, nil)
		require.NoError(t, err)
		var sum int64
		files, err := os.ReadDir(c.ShmDir)
		require.NoError(t, err)
		require.Len(t, files, 3)
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			sum += info.Size()
		}
		require.LessOrEqual(t, sum, c.SegmentBytes())
		require.Less(t, c.SegmentBytes(), sum+1<<20)
		require.NoError(t, l.close())
	}
}

func TestSwapHint(t *testing.T) {
	const heading = "Filename Type Size Used Priority\n"
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int
	}{
		"nothing known": {fstest.MapFS{}, 0},
		"none":          {fstest.MapFS{"proc/swaps": file(heading)}, 0},
		"some":          {fstest.MapFS{"proc/swaps": file(heading + "/swap file 1 0 -2\n")}, 1},
		"not wanted":    {fstest.MapFS{"proc/swaps": file(heading + "/swap file 1 0 -2\n"), "proc/sys/vm/swappiness": file("0\n")}, 0},
		"wanted":        {fstest.MapFS{"proc/swaps": file(heading + "/swap file 1 0 -2\n"), "proc/sys/vm/swappiness": file("60\n")}, 1},
		"group without": {fstest.MapFS{"proc/swaps": file(heading + "/swap file 1 0 -2\n"), "proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/memory.swap.max": file("0\n")}, 0},
		"group with":    {fstest.MapFS{"proc/swaps": file(heading + "/swap file 1 0 -2\n"), "proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/memory.swap.max": file("max\n")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var h findings
			hintSwap(&h, c.root)
			require.Len(t, h, c.want)
		})
	}
}
