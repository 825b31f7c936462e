package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the program, and so its children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "run", "child", "clean":
			main()
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// soak is a run of the program.
type soak struct {
	cmd      *exec.Cmd
	dir      string // of its segments
	out, err bytes.Buffer
}

// startSoak starts the program in a folder of its own, and kills it when the test ends.
func startSoak(t *testing.T, args ...string) *soak {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/dev/shm", "ringcache-test-soak-")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	s := &soak{cmd: exec.CommandContext(ctx, self,
		append([]string{"run", "--dir", dir, "--size", "8", "--processes", "12"}, args...)...), dir: dir}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.err
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = s.cmd.Wait() // a second time where the test has waited
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, 10*time.Millisecond)
	})
	return s
}

// wait returns the exit status and requires that no file is left.
func (s *soak) wait(t *testing.T) int {
	t.Helper()
	_ = s.cmd.Wait() // the status has it
	t.Logf("stdout: %s\nstderr: %s", &s.out, &s.err)
	files, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	require.Empty(t, files)
	return s.cmd.ProcessState.ExitCode()
}

// number returns a number of the summary, by a pattern with one group.
func (s *soak) number(t *testing.T, pattern string) int {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(s.out.String())
	require.NotNil(t, found, "%s in %s", pattern, &s.out)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// A short soak of all parts is clean, kills and adopts, and prints one line.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := startSoak(t, "--minutes", "0.16")
	require.Zero(t, s.wait(t))
	require.Equal(t, 1, strings.Count(s.out.String(), "\n"))
	for _, positive := range []string{`(\d+) operations`, `(\d+) objects`, `pair: (\d+) requests`} {
		require.Positive(t, s.number(t, positive), positive)
	}
	require.Positive(t, s.number(t, `kills: (\d+) writers`)+s.number(t, `writers, (\d+) readers`)+s.number(t,
		`readers, (\d+) of the pair`))
	for _, zero := range []string{`(\d+) losses`, `(\d+) wrong bytes`, `(\d+) files left`} {
		require.Zero(t, s.number(t, zero), zero)
	}
}

// Each planted defect is found, and described.
func TestPlantedDefectsAreFound(t *testing.T) {
	for _, c := range []struct{ plant, found, kind string }{
		{"descriptor", `leak: descriptors of the steady writer .* grew from \d+ to \d+`, ""},
		{"byte", `steady (reader|writer).*: key k\d+, id \d+ at \d+, .*: wrong bytes at byte \d+`,
			`([1-9]\d*) wrong bytes`},
		{"loss", `steady reader: request .*key k\d+, id \d+ at .* is stale`, `([1-9]\d*) losses`},
	} {
		t.Run(c.plant, func(t *testing.T) {
			t.Parallel()
			s := startSoak(t, "--minutes", "0.12", "--parts", "steady", "--plant", c.plant)
			require.Equal(t, 1, s.wait(t))
			require.Regexp(t, c.found, s.err.String())
			require.Regexp(t, `again: go run ./internal/soak --seed \d+`, s.err.String())
			require.Regexp(t, c.kind, s.out.String())
			require.Equal(t, 1, strings.Count(s.out.String(), "\n"))
		})
	}
}

// An interrupted soak prints its summary and leaves no files.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s := startSoak(t, "--minutes", "60")
	s.awaitSegments(t)
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 1, s.wait(t))
	require.Contains(t, s.err.String(), "interrupted")
	require.Zero(t, s.number(t, `(\d+) losses`))
}

// Children and segments of a supervisor that is killed go, also of children that are stopped.
func TestKilledSupervisorLeavesNothing(t *testing.T) {
	t.Parallel()
	s := startSoak(t, "--minutes", "60")
	s.awaitSegments(t)
	children := childrenOf(t, s.cmd.Process.Pid)
	require.NotEmpty(t, children)
	for _, pid := range children[:len(children)/2] {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	require.Eventually(t, func() bool {
		files, err := os.ReadDir(s.dir)
		return err == nil && len(files) == 0
	}, 3*time.Minute, 10*time.Millisecond, "segments are left")
	for _, pid := range children {
		require.Eventually(t, func() bool {
			return !usesFolder(pid, s.dir)
		}, 3*time.Minute, 10*time.Millisecond, "child %d is alive", pid)
	}
}

// awaitSegments waits until the segments are there.
func (s *soak) awaitSegments(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		files, err := os.ReadDir(s.dir)
		return err == nil && len(files) >= 10
	}, 3*time.Minute, 10*time.Millisecond)
}

func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that has ended
		}
		for _, word := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(word)
			require.NoError(t, err)
			if usesFolder(n, "/dev/shm/ringcache-test-soak-") {
				children = append(children, n)
			}
		}
	}
	return children
}

// usesFolder reports whether a process that lives is a child with segments in a folder.
func usesFolder(pid int, dir string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("\x00child\x00")) && bytes.Contains(line, []byte(dir))
}
