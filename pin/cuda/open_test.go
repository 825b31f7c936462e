//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/pin/cuda/internal/fakedriver"
)

// On a machine without a GPU the outcome is an error, and nothing else: no crash, no line from the library.
func TestMachineWithoutDriver(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), openChild+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := strings.TrimSuffix(string(out), "\n")
	if text == "opened <nil>" {
		t.Skip("this machine has a GPU")
	}
	require.NotContains(t, text, "\n", "one line, which is the test's own")
	require.True(t, strings.HasPrefix(text, "unavailable: "), text)
	if !strings.Contains(text, "cuInit") { // else there is a driver, without a GPU
		for _, tried := range []string{"libcuda.so.1: ", "/usr/lib/wsl/lib/libcuda.so.1", "Install NVIDIA's driver"} {
			require.Contains(t, text, tried)
		}
	}
	require.NotContains(t, text, "libcuda.so: ", "the toolkit's stub is never tried")
}

func TestOpenRetainsTheChosenDeviceOnly(t *testing.T) {
	f := useFake(t)
	d := open(t, 1)
	require.Equal(t, []string{initialized, retained(1)}, calls(f))
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(1), released(1)}, calls(f))
	require.NoError(t, d.Close(), "closing twice is fine")
	require.Equal(t, []string{initialized, retained(1), released(1)}, calls(f), "and does nothing")
}

func TestTwoDriversOfOneDevice(t *testing.T) {
	f := useFake(t)
	a, b := open(t, 0), open(t, 0)
	require.NoError(t, a.Close())
	m := mapping(t, 4096)
	r := register(t, b, m)
	require.NoError(t, r.Unregister())
	require.NoError(t, b.Close())
	require.Equal(t, []string{initialized, retained(0), initialized, retained(0), released(0), registered(m, 1, 0), unregistered(m, 0), released(0)}, calls(f))
}

// A device that does not exist is a mistake of the caller, not a machine without a driver.
func TestOpenRefusesDevicesThatDoNotExist(t *testing.T) {
	f := useFake(t)
	_, err := cuda.Open(2, cuda.Options{Library: fakeLibrary})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NotErrorIs(t, err, pin.ErrUnavailable)
	require.ErrorContains(t, err, "device 2: the driver has 2, numbered from 0")
	require.Equal(t, []string{initialized}, calls(f), "nothing was retained")

	_, err = cuda.Open(-1, cuda.Options{Library: fakeLibrary})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "device -1")
	require.Equal(t, []string{initialized}, calls(f), "the driver was not asked")
}

// Whatever the driver refuses at its start, the error is ErrUnavailable, with the driver's code and the cure.
func TestOpenWithoutUsableDriver(t *testing.T) {
	for name, c := range map[string]struct {
		fail    string
		prepare func(*fakedriver.Driver)
		code    int // of the *Error; 0 for none
		op      string
		text    string
		log     []string
	}{
		"stub library":    {fail: "cuInit:0:34", code: 34, op: "cuInit", text: "lib64/stubs out of LD_LIBRARY_PATH", log: []string{"cuInit = 34"}},
		"no device":       {fail: "cuInit:0:100", code: 100, op: "cuInit", text: "CUDA_VISIBLE_DEVICES", log: []string{"cuInit = 100"}},
		"driver mismatch": {fail: "cuInit:0:803", code: 803, op: "cuInit", text: "kernel module don't fit", log: []string{"cuInit = 803"}},
		"unknown":         {fail: "cuInit:0:999", code: 999, op: "cuInit", text: "the driver does not describe it. The kernel module nvidia-uvm", log: []string{"cuInit = 999"}},
		"fabric manager":  {fail: "cuInit:0:802", code: 802, op: "cuInit", text: "fabric manager", log: []string{"cuInit = 802"}},
		"not initialized": {fail: "cuDeviceGetCount:0:3", code: 3, op: "cuDeviceGetCount", text: "child of a fork", log: []string{initialized}},
		"zero devices": {prepare: func(f *fakedriver.Driver) { f.SetDevices(0) }, code: 100, op: "cuDeviceGetCount", text: "No GPU is visible",
			log: []string{initialized}},
		"device":    {fail: "cuDeviceGet:0:101", code: 101, op: "cuDeviceGet", text: "invalid device ordinal", log: []string{initialized}},
		"attribute": {fail: "cuDeviceGetAttribute:1:1", code: 1, op: "cuDeviceGetAttribute", text: "invalid argument", log: []string{initialized}},
		"no registration of host memory": {prepare: func(f *fakedriver.Driver) { f.SetAttribute(99, 0) },
			text: "device 0 can't register memory of the host (attribute 99 is 0)", log: []string{initialized}},
		"device memory is full": {fail: "cuDevicePrimaryCtxRetain:0:2", code: 2, op: "cuDevicePrimaryCtxRetain", text: "The device's memory is full",
			log: []string{initialized, "cuDevicePrimaryCtxRetain 0 = 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := useFake(t)
			f.Fail(c.fail)
			if c.prepare != nil {
				c.prepare(f)
			}
			d, err := cuda.Open(0, cuda.Options{Library: fakeLibrary})
			require.Nil(t, d)
			require.ErrorIs(t, err, pin.ErrUnavailable)
			require.ErrorContains(t, err, c.text)
			var e *cuda.Error
			require.Equal(t, c.code != 0, errors.As(err, &e))
			if e != nil {
				assert.Equal(t, c.code, e.Code)
				assert.Equal(t, c.op, e.Op)
			}
			require.Equal(t, c.log, calls(f))
		})
	}
}

func TestOpenWithoutLibrary(t *testing.T) {
	if noFake != nil {
		t.Skip("no compiler for libraries:", noFake)
	}
	source := filepath.Join(folder, "other.c")
	require.NoError(t, os.WriteFile(source, []byte("int cuInit(unsigned flags) { return (int)flags; }\n"), 0o600))
	other := filepath.Join(folder, "other.so")
	require.NoError(t, fakedriver.Compile(source, other))
	missing := filepath.Join(folder, "missing.so")

	for name, c := range map[string]struct{ library, text string }{
		"missing file":    {missing, "no such file: " + missing},
		"not a library":   {source, source + ": "},
		"a folder":        {folder, folder + ": "},
		"missing symbols": {other, other + ": has no cuDeviceGetCount: not the driver's library"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := cuda.Open(0, cuda.Options{Library: c.library})
			require.Nil(t, d)
			require.ErrorIs(t, err, pin.ErrUnavailable)
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.NotErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "Install NVIDIA's driver")
		})
	}
}
