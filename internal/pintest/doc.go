// Package pintest pins memory as a driver of a device does, on a machine without a device: for
// tests.
//
// io_uring pins the fixed buffers of a process by the call of the kernel that GPU drivers use
// (pin_user_pages with FOLL_LONGTERM and FOLL_WRITE), and copies from the pages themselves. So
// the package shows whether memory can be pinned, and what a device would copy from it. It proves
// nothing about a driver.
//
// Unlike a GPU driver, io_uring counts the pages against RLIMIT_MEMLOCK, often 8 MiB for all
// processes of a user that lack CAP_IPC_LOCK. The package is for 64-bit Linux.
package pintest

import "errors"

var (
	// ErrNotAllowed reports that this process can't use io_uring, or pin so much by it. A test
	// skips then, and prints the error.
	ErrNotAllowed = errors.New("pintest: not allowed here")
	// ErrNotPinnable reports that the kernel refused to pin the pages for a long time and for
	// writing.
	ErrNotPinnable = errors.New("pintest: not pinnable")
)
