// Package generate makes sequences of operations for rings, stores and caches. The sequences
// are drawn to the borders: wrap, exact fit, ids at 2^31, reset to address 0, full, duplicates,
// stale and forged handles, aborts, clears, crashes.
package generate
