// Package alloctest counts what tests allocate, to hold decoders to a small multiple of
// their input.
package alloctest

import (
	"math"
	"runtime"
)

// Bytes returns the bytes that fn allocates, dead or alive: the least of three runs, since the
// runtime and other goroutines allocate too.
func Bytes(fn func()) uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}
