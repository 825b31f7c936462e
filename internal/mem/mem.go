// Package mem reads and writes four-byte words of memory that other processes
// change at the same time, and orders such accesses.
//
// vLLM places its words at any byte offset and stores them by memcpy. A Go
// atomic on a word that straddles a cache line is close to a millisecond on
// x86 and faults on arm64, so an atomic is used only where the word happens to
// be aligned; elsewhere it is a plain four-byte access, which the compiler makes
// one instruction.
//
// See docs/decisions.md, "An atomic operation only where the word is aligned".
package mem

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/ringcache/ringcache/internal/failpoint"
)

func aligned(b []byte) (*uint32, bool) {
	b = b[:4]
	p := unsafe.Pointer(&b[0])
	return (*uint32)(p), uintptr(p)%4 == 0
}

// Addr returns where a mapping begins.
func Addr(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Offset returns where in b an address is; ok is false if it is not in b.
func Offset(b []byte, addr uintptr) (offset int, ok bool) {
	from := Addr(b)
	return int(addr - from), len(b) > 0 && addr >= from && addr-from < uintptr(len(b))
}

// Load32 reads b[0:4] as a little-endian word. It panics if b is shorter.
func Load32(b []byte) uint32 {
	if failpoint.Enabled {
		watch(Loads, b[:4])
	}
	if p, ok := aligned(b); ok && littleEndian {
		return atomic.LoadUint32(p)
	}
	return binary.LittleEndian.Uint32(b)
}

// Store32 writes b[0:4] as a little-endian word. It panics if b is shorter.
func Store32(b []byte, v uint32) {
	if failpoint.Enabled {
		watch(Stores, b[:4])
	}
	if p, ok := aligned(b); ok && littleEndian {
		atomic.StoreUint32(p, v)
		return
	}
	binary.LittleEndian.PutUint32(b, v)
}

// Or32 sets bits of the little-endian word b[0:4], which must be 4-byte aligned, in one step
// with reading the others. It panics if b is not aligned or shorter.
func Or32(b []byte, bits uint32) {
	if failpoint.Enabled {
		watch(Stores, b[:4])
	}
	atomic.OrUint32(word32(b), bits)
}

// And32 clears the bits of the little-endian word b[0:4] that mask has not, as Or32 sets bits.
func And32(b []byte, mask uint32) {
	if failpoint.Enabled {
		watch(Stores, b[:4])
	}
	atomic.AndUint32(word32(b), mask)
}

func word32(b []byte) *uint32 {
	p, ok := aligned(b)
	if !ok || !littleEndian {
		panic("mem: word of 4 bytes is not aligned, or the system is not little-endian")
	}
	return p
}

// Load64 reads b[0:8] as a little-endian word, which must be 8-byte aligned. It
// panics if it is not, or b is shorter.
func Load64(b []byte) uint64 {
	if failpoint.Enabled {
		watch(Loads, b[:8])
	}
	p := word64(b)
	if littleEndian {
		return atomic.LoadUint64(p)
	}
	return binary.LittleEndian.Uint64(b)
}

// Store64 writes b[0:8] as a little-endian word, which must be 8-byte aligned.
// It panics if it is not, or b is shorter.
func Store64(b []byte, v uint64) {
	if failpoint.Enabled {
		watch(Stores, b[:8])
	}
	p := word64(b)
	if littleEndian {
		atomic.StoreUint64(p, v)
		return
	}
	binary.LittleEndian.PutUint64(b, v)
}

func word64(b []byte) *uint64 {
	b = b[:8]
	p := unsafe.Pointer(&b[0])
	if uintptr(p)%8 != 0 {
		panic("mem: word of 8 bytes is not aligned")
	}
	return (*uint64)(p)
}

// LoadStable32 is Load32 for a word that another process may be storing at this
// moment. A word that straddles a cache line can be seen half stored. Reading
// until two reads agree makes that rare, not impossible, so the caller must bear
// a wrong value; rereading ends after a few tries, since a peer may store all the
// time.
func LoadStable32(b []byte) uint32 {
	v := Load32(b)
	if _, ok := aligned(b); ok {
		return v
	}
	for range 8 {
		Fence()
		w := Load32(b)
		if w == v {
			break
		}
		v = w
	}
	return v
}

// Fence keeps the loads and the stores before it from moving behind the loads
// and the stores after it, as seen by other processes. Go has no such function,
// but its atomics are sequentially consistent: on arm64 nothing passes a store
// (STLR) downwards, nothing passes a load (LDAR) upwards, and the two don't pass
// each other; on amd64 the store is a full barrier.
func Fence() {
	var w atomic.Uint32
	w.Store(1)
	w.Load()
}

var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()
