package blake3

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Hashing is free of allocations but for a write that helpers share: the batch, its nodes and a start for each.
func TestAllocations(t *testing.T) {
	dst := make([]byte, 0, Size)
	for _, trees := range forms {
		h := plainHasher(trees)
		for _, n := range []int{10, shortLen, 100_000, 2 * parallelLen} {
			in := pattern(n)
			require.Zero(t, testing.AllocsPerRun(20, func() {
				h.Reset()
				_, _ = h.Write(in)
				dst = h.Sum(dst[:0])
			}), "%d bytes; AllocsPerRun runs on one processor", n)
		}
	}
	h := plainHasher(true)
	in := pattern(3 << 20)
	procs(t, 2)
	idle(t)
	require.LessOrEqual(t, testing.Benchmark(func(b *testing.B) {
		for range b.N {
			h.Reset()
			_, _ = h.Write(in)
		}
	}).AllocsPerOp(), int64(4))
	idle(t)
}
