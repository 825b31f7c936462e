//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/inspect"
)

// TestHundredThousandObjects: every command that looks answers about a daemon with 10^5 objects, with little
// memory. What they took is logged; that it is less than a second is the matter of docs/commands.md, since a
// test on a busy machine can't tell.
func TestHundredThousandObjects(t *testing.T) {
	const batch = 1000
	objects := 100_000
	if raceEnabled { // which counts memory of its own, and is slow
		objects /= 10
	}
	s := newServing(t, "--size", "64MiB", "--max-objects", "110000")
	s.start()
	c := s.dial()
	for i := 0; i < objects; i += batch {
		var all []wire.Object
		var names []string
		for n := i; n < i+batch; n++ {
			names = append(names, fmt.Sprintf("%032x", n))
			all = append(all, wire.Object{Name: names[n-i], Size: 64})
		}
		items, err := c.Reserve(t.Context(), wire.Request{Lease: "fill", Space: "space", Objects: all})
		require.NoError(t, err)
		require.Equal(t, wire.StatusReserved, items[batch-1].Status)
		items, err = c.Commit(t.Context(), wire.Request{Lease: "fill", Space: "space", Names: names, Keep: i == 0})
		require.NoError(t, err)
		require.Equal(t, wire.StatusOK, items[batch-1].Status)
	}
	where := []string{"--dir", s.shm}
	for _, args := range [][]string{
		append([]string{"ls"}, where...), append([]string{"ls", "--json"}, where...),
		append([]string{"inspect", "ringcache"}, where...),
		append([]string{"inspect", "ringcache", "--json"}, where...),
		append([]string{"inspect", "ringcache", "--limit", "0"}, where...),
		append([]string{"map", "ringcache"}, where...),
		append([]string{"map", "ringcache", "--svg"}, where...),
		append([]string{"top", "ringcache", "--once"}, where...),
		{"top", "--once", "--socket", s.socket}, {"serve", "status", "--socket", s.socket},
		{"doctor", "--socket", s.socket, "--shm-dir", s.shm, "--size", "64MiB"},
		append([]string{"check", "ringcache"}, where...),
		append([]string{"tier", "ls", "shm:ringcache", "--json"}, where...),
	} {
		cmd := command(args...)
		peakFile := filepath.Join(t.TempDir(), "peak")
		cmd.Env = append(cmd.Env, "RINGCACHE_TEST_PEAK="+peakFile)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		began := time.Now()
		require.NoError(t, cmd.Run(), "%q", args)
		took := time.Since(began)
		b, err := os.ReadFile(peakFile)
		require.NoError(t, err)
		peak, err := strconv.Atoi(string(b))
		require.NoError(t, err)
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		t.Logf("%-40s %6.0f ms, %6.0f ms of CPU, %4d MB", strings.Join(args[:min(len(args), 4)], " "),
			float64(took)/1e6, float64(cpu)/1e6, peak/1000)
		if !raceEnabled && args[0] != "check" { // which reads every byte, and so has the pages of the segment
			require.Less(t, peak, 100_000, "KB of memory, %q", args)
		}
		switch {
		case args[0] == "inspect" && args[2] == "--json":
			var got struct{ Objects []inspect.Object }
			require.NoError(t, json.Unmarshal([]byte(out.String()), &got))
			require.Len(t, got.Objects, objects)
		case args[0] == "inspect":
			require.Contains(t, out.String(), fmt.Sprintf("%d objects in chunks of", objects))
		case args[0] == "ls" && args[1] != "--json":
			require.Contains(t, out.String(), fmt.Sprint(objects))
		}
	}
}

// writePeak writes the most memory that this process has had, in KB. The kernel's count of resources would
// have that of the process that started it, too.
func writePeak(file string) error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	m := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(b)
	if m == nil {
		return errors.New("no VmHWM")
	}
	return os.WriteFile(file, m[1], 0o600)
}
