//go:build linux && cgo && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
)

// What each code of a refused registration matches, and what its text advises. Codes that pass are tried twice.
func TestRegisterFails(t *testing.T) {
	for name, c := range map[string]struct {
		code  int
		is    error
		tries int
		text  []string
	}{
		"invalid value": {1, nil, 2, []string{"CUDA_ERROR_INVALID_VALUE (1): invalid argument. ", "not of tmpfs or hugetlbfs", "ReadOnly was not set",
			"tmpfs is full", "another process pinned", "MaxCall", "not mapped", "confidential computing"}},
		"out of memory":      {2, syscall.ENOMEM, 2, []string{"CUDA_ERROR_OUT_OF_MEMORY (2)", "MaxCall", "512 GiB", "WSL2"}},
		"deinitialized":      {4, fs.ErrClosed, 1, []string{"CUDA_ERROR_DEINITIALIZED (4): driver shutting down"}},
		"invalid context":    {201, nil, 1, []string{"CUDA_ERROR_INVALID_CONTEXT (201)", "primary context is gone"}},
		"kernel":             {304, nil, 1, []string{"cuMemHostRegister: error (304): the driver does not describe it. The kernel refused"}},
		"already registered": {712, pin.ErrRegistered, 1, []string{"(712)", "PyTorch, UCX or NIXL"}},
		"not permitted":      {800, fs.ErrPermission, 1, []string{"(800)", "container or the system denies it"}},
		"not supported":      {801, errors.ErrUnsupported, 1, []string{"(801)", "confidential computing"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := useFake(t)
			d := open(t, 0)
			m := mapping(t, 2<<12)
			f.Fail("cuMemHostRegister:0:" + strconv.Itoa(c.code))
			r, err := d.Register(m, pin.RegisterOptions{})
			require.Nil(t, r)
			var e *cuda.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "cuMemHostRegister", e.Op)
			require.Equal(t, c.code, e.Code)
			for _, target := range []error{syscall.ENOMEM, fs.ErrClosed, pin.ErrRegistered, fs.ErrPermission, errors.ErrUnsupported, fs.ErrInvalid} {
				require.Equal(t, target == c.is, errors.Is(err, target), "%v", target)
			}
			for _, text := range c.text {
				require.ErrorContains(t, err, text)
			}
			want := []string{initialized, retained(0)}
			for range c.tries {
				want = append(want, registered(m, 1, c.code))
			}
			require.NoError(t, d.Close(), "nothing is open")
			want = append(want, released(0))
			require.Equal(t, want, calls(f))
			t.Log(err)
			t.Log("\n" + strings.Join(calls(f), "\n"))
		})
	}
}

// Another process that pins the same pages makes a call fail now and then.
func TestRegisterTriesOnceMore(t *testing.T) {
	for _, code := range []int{1, 2} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			f := useFake(t)
			d := open(t, 0)
			m := mapping(t, 2<<12)
			f.Fail("cuMemHostRegister:1:" + strconv.Itoa(code))
			r := register(t, d, m)
			require.NoError(t, r.Unregister())
			require.Equal(t, []string{initialized, retained(0), registered(m, 1, code), registered(m, 1, 0), unregistered(m, 0)}, calls(f))
		})
	}
}

// After a refusal the pages may be in use, so the registration stays, keeps the driver open, and can be ended later.
func TestUnregisterFails(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 2<<12)
	r := register(t, d, m)
	f.Fail("cuMemHostUnregister:1:1")
	err := r.Unregister()
	var e *cuda.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, cuda.Error{Op: "cuMemHostUnregister", Code: 1, Name: "CUDA_ERROR_INVALID_VALUE", Text: "invalid argument"}, *e)
	require.True(t, r.Pinned())
	require.ErrorContains(t, d.Close(), "registrations 1")
	require.NoError(t, r.Unregister())
	require.False(t, r.Pinned())
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), unregistered(m, 1), unregistered(m, 0), released(0)}, calls(f))
	t.Log("\n" + strings.Join(calls(f), "\n"))
}

// Another library may have ended the registration. Then there is nothing to unregister.
func TestUnregisterWhatAnotherLibraryUnregistered(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 2<<12)
	r := register(t, d, m)
	require.Zero(t, f.Unregister(m))
	require.NoError(t, r.Unregister())
	require.False(t, r.Pinned())
	require.NoError(t, r.Unregister())
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), unregistered(m, 0), unregistered(m, 713), released(0)}, calls(f))
}

// While a process ends, the driver may be gone before its users.
func TestUnregisterAfterTheDriverShutDown(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	m := mapping(t, 2<<12)
	r := register(t, d, m)
	f.Fail("cuMemHostUnregister:1:4")
	require.NoError(t, r.Unregister())
	require.False(t, r.Pinned())
	f.Fail("cuDevicePrimaryCtxRelease:1:4")
	require.NoError(t, d.Close())
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 0), unregistered(m, 4), "cuDevicePrimaryCtxRelease 0 = 4"}, calls(f))
	f.End() // which it did not, really
}

// On WSL2 the system bounds what can be pinned, and the driver reports the end of it as 2. What is registered stays, and
// copies from elsewhere work.
func TestRegisterBeyondTheQuotaOfWSL2(t *testing.T) {
	f := useFake(t)
	d := open(t, 0)
	first, second := mapping(t, 2<<12), mapping(t, 2<<12)
	r := register(t, d, first)
	f.Fail("cuMemHostRegister:2:2,cuMemHostRegister:3:2")
	_, err := d.Register(second, pin.RegisterOptions{})
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.ErrorContains(t, err, "WSL2")
	require.True(t, r.Pinned())
	copyFrom(t, d, second)
	require.Equal(t, []string{
		initialized, retained(0), registered(first, 1, 0), registered(second, 1, 2), registered(second, 1, 2), copied(second, "pageable", 0),
	}, calls(f))
}

// With confidential computing every registration is refused, and copies work.
func TestRegisterWithConfidentialComputing(t *testing.T) {
	f := useFake(t)
	f.Fail("cuMemHostRegister:0:801")
	d := open(t, 0)
	m := mapping(t, 2<<12)
	_, err := d.Register(m, pin.RegisterOptions{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "confidential computing")
	copyFrom(t, d, m)
	require.Equal(t, []string{initialized, retained(0), registered(m, 1, 801), copied(m, "pageable", 0)}, calls(f))
}

// copyFrom copies m to the device, and compares.
func copyFrom(t *testing.T, d *cuda.Driver, m []byte) {
	t.Helper()
	copy(m, "from the host")
	dst := alloc(t, d, len(m))
	c, err := d.Copy(dst, 0, m)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	require.Equal(t, m, read(t, d, dst))
}
