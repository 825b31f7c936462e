package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bind asks the kernel to have the pages of a mapping on the nodes of the mask
// (64 to a word, the lowest first) by a policy MPOL_*, and to move those that
// are mapped already. The mapping begins at a page.
func Bind(b []byte, policy int, mask []uint64) error {
	_, _, e := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(policy),
		uintptr(unsafe.Pointer(unsafe.SliceData(mask))), uintptr(len(mask)*64+1), unix.MPOL_MF_MOVE)
	if e != 0 {
		return e
	}
	return nil
}

// Incore returns one byte for every page of a mapping, its lowest bit set if the
// page is in memory. The mapping begins at a page.
func Incore(b []byte) ([]byte, error) {
	page := unix.Getpagesize()
	out := make([]byte, (len(b)+page-1)/page)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		uintptr(unsafe.Pointer(unsafe.SliceData(out))))
	if e != 0 {
		return nil, e
	}
	return out, nil
}
