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
			r, other := putHeld(t, s, "a", 300), putHeld(t, s, "b", 100)
			h, err := r.Lookup("a")
			require.NoError(t, err)
			v, err := r.Stored(h)
			require.NoError(t, err)
			require.Equal(t, bytesItem(300).Elems, v.(*serde.Item).Elems)

			_, err = other.Stored(h)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, "not of an object of request of b")
			forged := h
			if g.Signed {
				forged.Signature = append([]byte{}, h.Signature...)
				forged.Signature[31] ^= 1
				_, err = r.Stored(forged)
				require.ErrorIs(t, err, ErrBadSignature)
				forged.Signature = nil
				_, err = r.Stored(forged)
				require.ErrorIs(t, err, ErrBadSignature)
			}

			chunk := s.Segment().Ring()[h.Address:]
			for at, want := range map[int]error{0: ErrStale, 4: ErrCorrupt, 7: ErrCorrupt, 12: ErrCorrupt} {
				chunk[at] ^= 0x7f
				_, err = r.Stored(h)
				require.ErrorIs(t, err, want, "byte %d", at)
				chunk[at] ^= 0x7f
			}
			_, err = r.Stored(h)
			require.NoError(t, err)

			require.NoError(t, r.Commit())
			deliver(t, s, "a", h)
			_, err = r.Stored(h)
			require.NoError(t, err)
			r.Finish()
			_, err = r.Stored(h)
			require.ErrorIs(t, err, ErrEnded)
			other.Rollback()
		})
	}
}
