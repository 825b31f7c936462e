package objstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An address is used again and again. For releases without signatures the id is what makes a handle that of the object
// under its key.
func TestVerifyRefusesTheHandleOfAnEarlierObjectAtTheAddress(t *testing.T) {
	for _, k := range kinds {
		for _, version := range []string{"0.31.0", "0.33.0"} {
			t.Run(string(k)+" "+version, func(t *testing.T) {
				s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 2000, Readers: 1, Generation: generation(t, version)})
				h, err := s.Put("a", image(600, 1))
				require.NoError(t, err)
				require.NoError(t, s.Verify("a", h))
				earlier := h
				earlier.ID--
				require.ErrorIs(t, s.Verify("a", earlier), ErrBadSignature)
				elsewhere := h
				elsewhere.Address += 64
				require.ErrorIs(t, s.Verify("a", elsewhere), ErrBadSignature)
				require.ErrorIs(t, s.Verify("b", h), ErrBadSignature)
				s.readAll(t, h, "a")
			})
		}
	}
}
