package tail_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/tail"
)

func TestBufferKeepsTheEnd(t *testing.T) {
	b := tail.New(5)
	for _, s := range []string{"", "abc", "def", "a line that is longer than the buffer"} {
		n, err := b.Write([]byte(s))
		require.NoError(t, err)
		require.Len(t, s, n)
	}
	require.Equal(t, "uffer", b.String())
	_, _ = b.Write([]byte("s!"))
	require.Equal(t, "fers!", b.String())
}
