//go:build linux

package fault_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
)

const childVariable = "RINGCACHE_FAULT_CHILD"

// TestMain lets the test binary be a process that counts, a number for each line that it is sent.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewScanner(os.Stdin)
	for n := 1; in.Scan(); n++ {
		fault.Point("before")
		fmt.Println(n)
		fault.Point("after")
	}
}

func child(t *testing.T) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	return cmd
}

func TestProcess(t *testing.T) {
	p := fault.Start(t, child(t))
	ask := func(want string) {
		t.Helper()
		_, err := fmt.Fprintln(p.In)
		require.NoError(t, err)
		line, err := p.Line()
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	ask("1")
	require.NoError(t, p.Stop())
	_, err := fmt.Fprintln(p.In)
	require.NoError(t, err)
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	require.NoError(t, err)
	require.Contains(t, string(state), ") T ", "it does not answer")
	require.NoError(t, p.Continue())
	line, err := p.Line()
	require.NoError(t, err)
	require.Equal(t, "2", line)
	require.NoError(t, p.Kill())
	require.NoError(t, p.WaitKilled())
	_, err = p.Line()
	require.Error(t, err)
	require.Error(t, p.Stop(), "it has ended")

	p = fault.Start(t, child(t))
	require.NoError(t, p.In.Close())
	require.NoError(t, p.Wait())
	require.ErrorContains(t, p.WaitKilled(), "was not killed")
}

func TestKillAt(t *testing.T) {
	for place, want := range map[string]int{"before": 2, "after": 3} { // lines before the third time there
		cmd := child(t)
		fault.KillAt(cmd, place, 3)
		p := fault.Start(t, cmd)
		_, err := fmt.Fprint(p.In, "\n\n\n\n\n")
		require.NoError(t, err)
		n := 0
		for p.Out.Scan() {
			n++
		}
		require.Equal(t, want, n, place)
		require.NoError(t, p.WaitKilled())
	}
	cmd := child(t)
	fault.KillAt(cmd, "nowhere", 1)
	p := fault.Start(t, cmd)
	require.NoError(t, p.In.Close())
	require.NoError(t, p.Wait())
	n := 0
	for name, when := range fault.Points() {
		require.NotEmpty(t, name+when)
		n++
	}
	require.Greater(t, n, 30)
}

func TestKindsOfDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	before := make([]byte, 20000)
	for i := range before {
		before[i] = byte(i*7 + 1)
	}
	require.NoError(t, os.WriteFile(path, before, 0o600))
	for _, k := range fault.Kinds() {
		changed := 0
		for seed := range uint64(40) {
			c, err := k.Apply(path, 5000, 9000, seed)
			require.NoError(t, err)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.GreaterOrEqual(t, c.Offset, int64(5000), c)
			require.Less(t, c.Offset, int64(9000))
			require.Equal(t, before[:c.Offset], after[:c.Offset])
			if string(before) != string(after) {
				changed++
			}
			if k == fault.Truncate {
				require.Len(t, after, int(c.Offset))
			} else {
				end := int(c.Offset) + len(c.Is)
				require.LessOrEqual(t, end, 9000, c)
				require.Equal(t, c.Is, after[c.Offset:end])
				require.Equal(t, before[end:], after[end:])
			}
			require.NoError(t, c.Undo())
			again, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, before, again)
			same, err := k.Apply(path, 5000, 9000, seed)
			require.NoError(t, err)
			require.Equal(t, c, same)
			require.NoError(t, same.Undo())
		}
		require.Greater(t, changed, 10, k)
		require.NotContains(t, k.String(), "Kind(")
	}
	_, err := fault.FlipBit.Apply(path, 20000, 0, 1)
	require.ErrorContains(t, err, "no bytes")
	_, err = fault.Kind(99).Apply(path, 0, 0, 1)
	require.ErrorContains(t, err, "Kind(99)")
}

func TestLimitDescriptors(t *testing.T) {
	if !fault.InChild(t, nil) {
		return
	}
	for n := range 5 {
		restore := fault.LimitDescriptors(t, n)
		var files []*os.File
		for {
			f, err := os.Open("/dev/null")
			if err != nil {
				require.ErrorIs(t, err, syscall.EMFILE)
				break
			}
			files = append(files, f)
		}
		restore()
		require.Len(t, files, n)
		for _, f := range files {
			require.NoError(t, f.Close())
		}
	}
}

func TestMount(t *testing.T) {
	if !fault.InChild(t, fault.OwnMounts()) {
		return
	}
	dir := t.TempDir()
	fault.Mount(t, dir, "size=64k")
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 65537), 0o600), syscall.ENOSPC)
}
