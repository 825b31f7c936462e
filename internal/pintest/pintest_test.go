//go:build linux

package pintest

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// mapped returns memory outside of Go's, which is unmapped when the test ends.
func mapped(t *testing.T, bytes, protection int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, bytes, protection, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m
}

func pinned(t *testing.T, m []byte) *Pinned {
	t.Helper()
	p, err := Pin(m)
	if errors.Is(err, ErrNotAllowed) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Release()) })
	return p
}

func TestCopyReadsThePinnedPages(t *testing.T) {
	m := mapped(t, mib, unix.PROT_READ|unix.PROT_WRITE)
	p := pinned(t, m)
	for round := range 5 { // more than the queues have entries
		for i := range m {
			m[i] = byte(i*31 + i>>8 + round)
		}
		got := make([]byte, len(m))
		require.NoError(t, p.Copy(got, 0))
		require.True(t, bytes.Equal(m, got), "round %d", round)
		require.NoError(t, p.Copy(got[:5], 4094))
		require.Equal(t, m[4094:4099], got[:5])
	}
	want := bytes.Clone(m)
	// New pages in place of the pinned ones, which a device goes on using.
	require.NoError(t, unix.Madvise(m, unix.MADV_DONTNEED))
	require.Zero(t, m[1])
	got := make([]byte, len(m))
	require.NoError(t, p.Copy(got, 0))
	require.True(t, bytes.Equal(want, got))

	for _, c := range []struct {
		name         string
		bytes, where int
	}{
		{"behind the end", 2, mib - 1},
		{"before the start", 1, -1},
	} {
		t.Run(c.name, func(t *testing.T) { require.ErrorContains(t, p.Copy(make([]byte, c.bytes), c.where), "of 1048576") })
	}
	require.NoError(t, p.Release())
	require.NoError(t, p.Release())
	require.ErrorContains(t, p.Copy(got, 0), "released: true")
}

func TestPinRefuses(t *testing.T) {
	pinned(t, mapped(t, 4096, unix.PROT_READ|unix.PROT_WRITE)) // or skip
	_, err := Pin(nil)
	require.ErrorContains(t, err, "0 bytes, want 1 to 1073741824")
	_, err = Pin(mapped(t, maxBytes+1, unix.PROT_NONE))
	require.ErrorContains(t, err, "1073741825 bytes, want")
	_, err = Pin(mapped(t, mib, unix.PROT_NONE))
	require.ErrorIs(t, err, ErrNotPinnable)
	require.ErrorIs(t, err, unix.EFAULT)
}

func TestPinBeyondTheLimit(t *testing.T) {
	m := mapped(t, mib, unix.PROT_READ|unix.PROT_WRITE)
	pinned(t, m[:4096]) // or skip
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 65536, Max: was.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)) }()
	runtime.LockOSThread() // for good: the thread can't have its capability back
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	require.NoError(t, unix.Capget(&head, &caps[0]))
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&head, &caps[0]))

	_, err := Pin(m)
	require.ErrorIs(t, err, ErrNotAllowed)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "RLIMIT_MEMLOCK is 65536 bytes")
}

func TestReasons(t *testing.T) {
	for e, c := range map[unix.Errno]struct {
		kind error
		text string
	}{
		unix.ENOSYS:     {ErrNotAllowed, "a filter of system calls hides it"},
		unix.EPERM:      {ErrNotAllowed, "kernel.io_uring_disabled ("},
		unix.EOPNOTSUPP: {ErrNotAllowed, "kernels before 6.5"},
		unix.EFAULT:     {ErrNotPinnable, "mapped read-only"},
		unix.EMFILE:     {unix.EMFILE, "pintest: a call: "},
	} {
		t.Run(e.Error(), func(t *testing.T) {
			err := explain("a call", e)
			require.ErrorIs(t, err, c.kind)
			require.ErrorIs(t, err, e)
			require.ErrorContains(t, err, c.text)
		})
	}
}
