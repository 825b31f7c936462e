//go:build amd64 || arm64

package futex

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The operations without FUTEX_PRIVATE_FLAG: the word is shared by processes.
const (
	opWait = 0
	opWake = 1
)

func wait(w *atomic.Uint32, old uint32, timeout time.Duration) error {
	ts := unix.NsecToTimespec(max(0, timeout.Nanoseconds()))
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), opWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	switch e {
	case 0, unix.EAGAIN, unix.EINTR, unix.ETIMEDOUT:
		return nil
	}
	return e
}

func wake(w *atomic.Uint32, n int) error {
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), opWake, uintptr(n), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
