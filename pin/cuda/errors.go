package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/pin"
)

var (
	errInvalid = sentinel.New(sentinel.Invalid, "cuda: invalid argument")
	errClosed  = sentinel.New(sentinel.Closed, "cuda: closed")
	errBusy    = sentinel.New(sentinel.Busy, "cuda: in use")
)

// Error reports that a function of the driver failed. Its text contains likely causes, and cures.
type Error struct {
	Op   string // the function, without a version: "cuMemHostRegister"
	Code int    // as in cuda.h
	Name string // of the code, such as "CUDA_ERROR_INVALID_VALUE"; empty if the driver knows none
	Text string // the driver's own sentence about the code
}

// Error has the driver's name and text of the code, and what helps.
func (e *Error) Error() string {
	name, text := e.Name, e.Text
	if name == "" {
		name = "error"
	}
	if text == "" {
		text = "the driver does not describe it"
	}
	s := fmt.Sprintf("cuda: %s: %s (%d): %s", e.Op, name, e.Code, text)
	if a := advice(e.Op, code(e.Code)); a != "" {
		s += ". " + a
	}
	return s
}

// Is reports whether the code means the same as target.
func (e *Error) Is(target error) bool {
	switch code(e.Code) {
	case outOfMemory:
		return target == syscall.ENOMEM
	case deinitialized:
		return target == fs.ErrClosed
	case alreadyRegistered:
		return target == pin.ErrRegistered
	case notPermitted:
		return target == fs.ErrPermission
	case notSupported:
		return target == errors.ErrUnsupported
	}
	return false
}

const opRegister = "cuMemHostRegister"

// advice returns the causes of a code, and what helps.
func advice(op string, c code) string {
	switch {
	case op == opRegister && c == invalidValue:
		return "The driver gives this code whenever it can't pin all pages. Causes: the memory is not of tmpfs or hugetlbfs; " +
			"it is mapped to read only, and ReadOnly was not set; the tmpfs is full, so that pages can't be made; another process pinned " +
			"the same pages at the same moment; it is more than the driver can take in one call (PinOptions.MaxCall); a part of it is not " +
			"mapped; a virtual machine with confidential computing"
	case op == opRegister && c == outOfMemory:
		return "Causes: it is more than the driver can take in one call, which is 512 GiB, and about 2 GiB with the kernels 6.11 to 6.13 " +
			"(PinOptions.MaxCall); on WSL2 Windows bounds what may be pinned; the kernel has no memory left for its tables"
	case c == outOfMemory:
		return "The device's memory is full"
	case c == notInitialized:
		return "The driver does not work in the child of a fork: open it there"
	case c == stubLibrary:
		return "The library is the stub of CUDA's toolkit, which is for linkers only: take the toolkit's folder lib64/stubs out of LD_LIBRARY_PATH"
	case c == noDevice:
		return "No GPU is visible: look at nvidia-smi, CUDA_VISIBLE_DEVICES, and whether the container was started with GPUs"
	case c == invalidContext:
		return "The device's primary context is gone: something in this process reset the device, or the process is the child of a fork"
	case c == operatingSystem:
		return "The kernel refused: its log has the cause"
	case c == alreadyRegistered:
		return "This program, or a library in the same process such as PyTorch, UCX or NIXL, registered some of the same pages"
	case c == notPermitted:
		return "The container or the system denies it"
	case c == notSupported:
		return "A virtual machine with confidential computing refuses every registration, and some devices and systems have none. " +
			"Copies from memory that is not registered work"
	case c == systemNotReady:
		return "A service of the system is not ready: on machines with NVSwitch, start the fabric manager"
	case c == systemDriverMismatch, c == compatNotSupported:
		return "The driver's library and its kernel module don't fit each other: restart the machine after an update, and in a container use the host's library"
	case c == unknown:
		return "The kernel module nvidia-uvm may be missing: run nvidia-modprobe -u, or restart the container with GPUs"
	}
	return ""
}

// unavailable returns pin.ErrUnavailable with its cause.
func unavailable(cause error) error { return fmt.Errorf("%w: %w", pin.ErrUnavailable, cause) }
