//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/pin/cuda/internal/fakedriver"
)

// The fake driver is compiled once for the process.
var (
	folder      string // of libraries
	fakeLibrary string
	noFake      error // why there is none
)

// openChild makes this program open the machine's own driver, print the outcome, and exit.
const openChild = "RINGCACHE_TEST_OPEN_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(openChild) != "" {
		d, err := cuda.Open(0, cuda.Options{})
		switch {
		case err == nil:
			fmt.Println("opened", d.Close())
		case errors.Is(err, pin.ErrUnavailable):
			fmt.Println("unavailable:", err)
		default:
			fmt.Println("failed:", err)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "ringcache-fake-cuda-"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(folder)
	fakeLibrary = filepath.Join(folder, "libfakecuda.so.1")
	noFake = fakedriver.Compile(filepath.Join("testdata", "driver", "driver.c"), fakeLibrary)
	return m.Run()
}

// useFake returns the fake driver as if nothing had happened yet. When the test ends, everything must have been
// given back, and no rule of the driver been violated.
func useFake(t *testing.T) *fakedriver.Driver {
	t.Helper()
	if noFake != nil {
		t.Skip("no fake driver:", noFake)
	}
	f, err := fakedriver.Load(fakeLibrary)
	require.NoError(t, err)
	f.Reset()
	t.Cleanup(func() {
		for what, n := range f.Left() {
			assert.Zero(t, n, what)
		}
		lines := 100
		if !t.Failed() {
			lines = 12 // which go test -v prints
		}
		log := f.Log()
		for _, c := range log[max(0, len(log)-lines):] {
			t.Log(c.Thread, c.Text)
		}
	})
	return f
}

// open opens a device of the fake driver. When the test ends, it must close.
func open(t *testing.T, device int) *cuda.Driver {
	t.Helper()
	d, err := cuda.Open(device, cuda.Options{Library: fakeLibrary})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// mapping returns anonymous memory that is shared, which ends with the test, after its drivers.
func mapping(t testing.TB, bytes int) []byte {
	t.Helper()
	return mapped(t, bytes, unix.PROT_READ|unix.PROT_WRITE)
}

func mapped(t testing.TB, bytes, protection int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, bytes, protection, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Munmap(m)) })
	return m
}

func register(t *testing.T, d *cuda.Driver, m []byte) pin.Registration {
	t.Helper()
	r, err := d.Register(m, pin.RegisterOptions{})
	require.NoError(t, err)
	require.True(t, r.Pinned())
	t.Cleanup(func() { assert.NoError(t, r.Unregister()) })
	return r
}

func alloc(t *testing.T, d *cuda.Driver, bytes int) *cuda.Memory {
	t.Helper()
	m, err := d.Alloc(bytes)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Free()) })
	return m
}

// read returns what the device has.
func read(t testing.TB, d *cuda.Driver, m *cuda.Memory) []byte {
	t.Helper()
	b := make([]byte, m.Size())
	require.NoError(t, d.Read(b, m, 0))
	return b
}

// calls returns what the log contains.
func calls(f *fakedriver.Driver) []string {
	var out []string
	for _, c := range f.Log() {
		out = append(out, c.Text)
	}
	return out
}

// Lines of the log.
func retained(device int) string { return fmt.Sprintf("cuDevicePrimaryCtxRetain %d = 0", device) }
func released(device int) string { return fmt.Sprintf("cuDevicePrimaryCtxRelease %d = 0", device) }
func registered(m []byte, flags, code int) string {
	return fmt.Sprintf("cuMemHostRegister %p+%d flags=%d = %d", m, len(m), flags, code)
}
func unregistered(m []byte, code int) string {
	return fmt.Sprintf("cuMemHostUnregister %p = %d", m, code)
}
func copied(src []byte, from string, code int) string {
	return fmt.Sprintf("cuMemcpyHtoDAsync %p+%d %s = %d", src, len(src), from, code)
}

const initialized = "cuInit = 0"
