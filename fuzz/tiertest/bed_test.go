package tiertest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wrong bytes have to be noticed: those of another object, another size, another place.
func TestContentDiffers(t *testing.T) {
	a := content(key("a"), 100_000)
	require.Equal(t, a, content(key("a"), 100_000))
	for _, other := range [][]byte{content(key("b"), 100_000), content(key("a"), 100_001)} {
		same := 0
		for i := range a {
			if a[i] == other[i] {
				same++
			}
		}
		require.Less(t, same, 2000)
	}
	for _, step := range []int{251, 500, 502, 4096, 65536} {
		for at := 0; at+step+1000 < len(a); at += 777 {
			require.False(t, bytes.Equal(a[at:at+1000], a[at+step:at+step+1000]), "bytes at %d and %d", at, at+step)
		}
	}
	require.Len(t, content(key("a"), 0), 0)
	require.Len(t, content(key("a"), 1), 1)
}
