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
