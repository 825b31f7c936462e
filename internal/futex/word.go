package futex

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Words returns the eight bytes b[0:8] as one atomic word and its first four
// bytes as another, for little-endian systems. b must be 8-byte aligned, as the
// start of every mapping is, and must stay mapped while they are in use.
func Words(b []byte) (whole *atomic.Uint64, low *atomic.Uint32) {
	p := unsafe.Pointer(&b[:8][0])
	if uintptr(p)%8 != 0 {
		panic(fmt.Sprintf("futex: word at %p is not 8-byte aligned", p))
	}
	return (*atomic.Uint64)(p), (*atomic.Uint32)(p)
}
