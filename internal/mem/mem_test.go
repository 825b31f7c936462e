package mem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWordsAtEveryAlignment(t *testing.T) {
	buf := make([]byte, 160)
	for off := range 128 {
		Store32(buf[off:], 0x80ff0102)
		require.Equal(t, []byte{0x02, 0x01, 0xff, 0x80}, buf[off:off+4])
		require.Equal(t, uint32(0x80ff0102), Load32(buf[off:]))
		require.Equal(t, uint32(0x80ff0102), LoadStable32(buf[off:]))
		clear(buf)
	}
	require.Panics(t, func() { Load32(buf[157:]) })
	require.Panics(t, func() { Store32(buf[157:], 1) })
}
