package fault

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGuardAllocatesNothing: the function does not escape, so a closure costs nothing, whatever
// it captures.
func TestGuardAllocatesNothing(t *testing.T) {
	b, n := []byte{1, 2, 3}, 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		err := Guard(func() error {
			n += int(b[1])
			return nil
		})
		if err != nil {
			panic(err)
		}
	}))
	require.Positive(t, n)
}

func BenchmarkGuard(b *testing.B) {
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := Guard(func() error { n++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
