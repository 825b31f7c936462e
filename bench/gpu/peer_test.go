package main

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// torchPython returns an interpreter with PyTorch: that of the interop environment, if it was made.
func torchPython(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(cache, "ringcache", "interop-*", "bin", "python"))
	require.NoError(t, err)
	for _, python := range found {
		if exec.Command(python, "-c", "import importlib.util as u; assert u.find_spec('torch')").Run() == nil {
			return python
		}
	}
	t.Skip("no interpreter with PyTorch: interop/setup.sh makes one")
	return ""
}

// TestPeerOnCPU runs the steps of every arm of PyTorch without a GPU. The peer compares the copied bytes.
func TestPeerOnCPU(t *testing.T) {
	t.Setenv("OMP_NUM_THREADS", "1") // on a busy machine several threads wait for each other
	p, err := openPeer(t.Context(), torchPython(t), "cpu")
	require.NoError(t, err)
	defer func() { assert.NoError(t, p.Close()) }()
	assert.NotEmpty(t, p.versions["torch"])

	const size = 64 * kib
	ring := make([]byte, ringSize(mib, size))
	_, _ = rand.Read(ring)
	path := filepath.Join(t.TempDir(), "ring")
	require.NoError(t, os.WriteFile(path, ring, 0o600))
	require.NoError(t, p.open(path, len(ring), size))
	assert.Equal(t, map[string]string{torchRegistered: "RuntimeError: the device is cpu"}, p.leftOut)

	arms := p.arms()
	assert.Len(t, arms, len(torchArms)-1)
	for _, a := range arms {
		t.Run(a.name(), func(t *testing.T) {
			for _, c := range []cell{{size, 0, 1}, {size, 12, 3}} {
				got, err := a.measure(c, 4)
				require.NoError(t, err)
				assert.Len(t, got.Submit, 4)
				assert.Len(t, got.Total, 4)
				for i := range got.Total {
					assert.Positive(t, got.Submit[i])
					assert.GreaterOrEqual(t, got.Total[i], got.Submit[i])
				}
			}
		})
	}

	b := &bench{options: options{KiB: []int{64}, Repetitions: 2, Matrix: 32}, report: newReport(options{})}
	require.NoError(t, b.measureOverlap(t.Context(), p))
	require.Len(t, b.report.Overlap, 1)
	assert.Equal(t, torchUnregistered, b.report.Overlap[0].Arm)
	assert.Equal(t, 4, b.report.Overlap[0].Both.N)
	assert.Positive(t, b.report.Overlap[0].Ratio)

	_, err = torchArm{p, "by hand"}.measure(cell{size, 0, 1}, 1)
	assert.EqualError(t, err, "measure: KeyError: 'by hand'")
}

// TestTorchWithoutCUDA: its arms are left out, with PyTorch's reason, and everything else is measured.
func TestTorchWithoutCUDA(t *testing.T) {
	python, out := torchPython(t), t.TempDir()
	o := runOnFake(t, []string{"CUDA_VISIBLE_DEVICES="}, "--quick", "--only", "copies", "--python", python, "--out",
		out)
	require.Zero(t, o.status, o.stderr)
	r := readReport(t, out)
	assert.Len(t, r.Copies, 3*4*2)
	left := map[string]string{}
	for _, l := range r.LeftOut {
		left[l.What] = l.Reason
	}
	for _, name := range append(torchArms, "copies beside a multiplication") {
		assert.Regexp(t, "^RuntimeError: torch .* finds no CUDA device$", left[name], name)
		assert.Contains(t, o.stdout, name+": RuntimeError: torch")
	}
}

// TestNoTorch: an interpreter without PyTorch leaves the arms out, too.
func TestNoTorch(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3:", err)
	}
	t.Setenv("PYTHONPATH", t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("PYTHONPATH"), "torch.py"),
		[]byte("raise ImportError('not this one')"), 0o600))
	_, err = openPeer(t.Context(), python, "cuda:0")
	reason, ok := errors.AsType[errNoTorch](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, errNoTorch("ImportError: not this one"), reason)
}

// TestTorchRegistered copies through ringcache.pin to the memory of the fake driver.
func TestTorchRegistered(t *testing.T) {
	cmd := exec.Command(torchPython(t), "testdata/registered.py", "peer.py", fakeDriver(t))
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../python/src", "PYTHONDONTWRITEBYTECODE=1",
		"FAKE_CUDA_DELAY_US=1000")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "ok\n", string(out))
}
