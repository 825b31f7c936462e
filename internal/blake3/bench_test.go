package blake3

import (
	"fmt"
	"testing"
)

// BenchmarkWrite hashes both ways. Run it once with -cpu 1 and once with -cpu 2: with both at once, what uses b.Loop
// runs on the processors of the benchmark before.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 3 << 20, 24 << 20} {
		in := pattern(n)
		for name, trees := range forms {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				h := plainHasher(trees)
				var sum []byte
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					h.Reset()
					_, _ = h.Write(in)
					sum = h.Sum(sum[:0])
				}
			})
		}
	}
}
