package sizes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/sizes"
)

func TestText(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "-1 bytes", 0: "0 bytes", 1: "1 byte", 1024: "1024 bytes", 20 << 10: "20.0 KiB", 3 << 19: "1.5 MiB", 107_374_182_400: "100.00 GiB",
		3 << 39: "1.50 TiB",
	} {
		require.Equal(t, want, sizes.Text(n))
	}
}

// TestAboveShowsTheDifference: a text that says of 1.00 GiB that it is above 1024.0 MiB helps nobody.
func TestAboveShowsTheDifference(t *testing.T) {
	for limit, want := range map[int64][2]string{
		1<<30 - 24: {"1073741824 bytes", "1073741800 bytes"}, 1<<30 - 1<<24: {"1073741824 bytes", "1056964608 bytes"},
		1 << 29: {"1.00 GiB", "512.0 MiB"}, 0: {"1.00 GiB", "0 bytes"},
	} {
		above, below := sizes.Above(1<<30, limit)
		require.Equal(t, want, [2]string{above, below})
	}
}
