package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
)

// Payloads are slices of the message. Whoever appends to one must not change the next.
func TestPayloadsEndWhereTheyEnd(t *testing.T) {
	inline := "\x92" + "\xd5\x03ab" + "\xd5\x03cd" // two extensions of two bytes
	got, err := codec.Decode([][]byte{[]byte(inline)}, func(d *codec.Decoder) ([][]byte, error) {
		n, err := d.Array("parts")
		require.NoError(t, err)
		var all [][]byte
		for range n {
			b, err := d.Payload("part", 2)
			if err != nil {
				return nil, err
			}
			all = append(all, b)
		}
		return all, nil
	})
	require.NoError(t, err)
	_ = append(got[0], "xxx"...)
	require.Equal(t, [][]byte{[]byte("ab"), []byte("cd")}, got)
	require.Equal(t, 2, cap(got[1]))
}
