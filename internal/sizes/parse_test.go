package sizes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/sizes"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "4096": 4096, "1KiB": 1024, "4GiB": 4 << 30, "4Gi": 4 << 30, "4G": 4 << 30, "4g": 4 << 30, "4gib": 4 << 30, "1.5T": 3 << 39, "512M": 512 << 20, "8k": 8192, "9KB": 9000, "3gb": 3e9, "7 b": 7, "1.5GiB": 3 << 29, "0.5KiB": 512, "2TiB": 2 << 40, "1kB": 1000, "3GB": 3e9, "512 MiB": 512 << 20,
		"7B": 7, "9223372036854775807": 1<<63 - 1,
	} {
		n, err := sizes.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "GiB", "G", "4P", "4GG", "4ib", "-1", "+1", "1e3", "0x10", "1/2", "1.2.3", "0.3KiB", "9223372036854775808", "9000000TiB", "1_000", "Infinity", strings.Repeat("9", 1000) + "GiB", "4GiBGiB", "٤GiB"} {
		_, err := sizes.Parse(text)
		require.Error(t, err, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<62).Draw(t, "n") >> rapid.IntRange(0, 62).Draw(t, "shift") << rapid.IntRange(0, 40).Draw(t, "up")
		if n < 0 {
			n = 0
		}
		back, err := sizes.Parse(sizes.Format(n))
		require.NoError(t, err)
		require.Equal(t, n, back)
	})
	require.Equal(t, "4GiB", sizes.Format(4<<30))
	require.Equal(t, "0", sizes.Format(0))
}
