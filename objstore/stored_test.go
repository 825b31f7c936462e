package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// TestStored: a writer sees what its workers will, also when the chunk is not what
// it wrote.
func TestStored(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			s := smallStore(t, g.Version)
			l, other := putLeased(t, s.Writer, "a", 300), putLeased(t, s.Writer, "b", 100)
			h, err := l.Issue()
			require.NoError(t, err)
			v, err := l.Stored(h)
			require.NoError(t, err)
			require.Equal(t, bytesItem(300).Elems, v.(*serde.Item).Elems)

			_, err = other.Stored(h)
			require.ErrorIs(t, err, ErrInvalid)
			forged := h
			if g.Signed {
				forged.Signature = append([]byte{}, h.Signature...)
				forged.Signature[31] ^= 1
				_, err = l.Stored(forged)
				require.ErrorIs(t, err, ErrBadSignature)
				forged.Signature = nil
				_, err = l.Stored(forged)
				require.ErrorIs(t, err, ErrBadSignature)
			}

			chunk := s.Segment().Ring()[h.Address:]
			for at, want := range map[int]error{0: ErrStale, 4: ErrCorrupt, 7: ErrCorrupt, 12: ErrCorrupt} {
				chunk[at] ^= 0x7f
				_, err = l.Stored(h)
				require.ErrorIs(t, err, want, "byte %d", at)
				chunk[at] ^= 0x7f
			}
			_, err = l.Stored(h)
			require.NoError(t, err)

			deliver(t, s, "a", h)
			l.Release()
			_, err = l.Stored(h)
			require.ErrorIs(t, err, ErrInvalid)
			other.Release()
		})
	}
}
