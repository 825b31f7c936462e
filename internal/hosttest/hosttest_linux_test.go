package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answers runs a command on a host, and returns what it says.
func answers(h *Host, command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	h.On(cmd)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestHosts: each has a /dev/shm and a network of its own, files of the machine are on all, and a cut cable is one.
func TestHosts(t *testing.T) {
	n := New(t)
	a, b := n.Host(), n.Host()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("of the machine"), 0o600))
	for _, h := range []*Host{a, b} {
		out, err := answers(h, "cat", file)
		require.NoError(t, err, out)
		require.Equal(t, "of the machine", out)
		out, err = answers(h, "ls", "/dev/shm")
		require.NoError(t, err, out)
		require.Empty(t, out)
		out, err = answers(h, "touch", "/dev/shm/of-one-host")
		require.NoError(t, err, out)
	}
	require.NoFileExists(t, "/dev/shm/of-one-host")
	require.NotEqual(t, a.Hub(), b.Hub())

	reaches := func(h *Host) bool {
		// Nothing listens at port 1: that is said at once, by whom the host reaches.
		out, _ := answers(h, "bash", "-c", "timeout 1 bash -c 'exec 3<>/dev/tcp/"+h.Hub()+"/1'")
		return strings.Contains(out, "refused")
	}
	require.Eventually(t, func() bool { return reaches(a) && reaches(b) }, patience, time.Millisecond)
	a.Cut()
	require.False(t, reaches(a))
	require.True(t, reaches(b))
	a.Mend()
	require.Eventually(t, func() bool { return reaches(a) }, patience, time.Millisecond)
}
