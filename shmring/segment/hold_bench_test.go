//go:build linux

package segment_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
)

// BenchmarkHold holds and releases one segment from several goroutines. The time is that of
// one pair, all goroutines together.
func BenchmarkHold(b *testing.B) {
	s, err := segment.Private(nil, segment.Options{RingSize: 4096})
	require.NoError(b, err)
	for _, goroutines := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for range b.N / goroutines {
						if s.Hold() != nil {
							panic("closed")
						}
						s.Release()
					}
				})
			}
			wg.Wait()
		})
	}
}
