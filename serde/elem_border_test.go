package serde

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An elem has all keys of its generation: one without its field could only be batched by a guess.
func TestDecodeItemRefusesHalfAnElem(t *testing.T) {
	for name, doc := range map[string]string{
		"no field": "\x81\xa1k\x81\xa4data\x01",
		"no data":  "\x81\xa1k\x81\xa5field\x92\xa7batched\x81\xabkeep_on_cpu\xc2",
		"nothing":  "\x81\xa1k\x80",
	} {
		_, err := DecodeItem([][]byte{[]byte(doc)}, Options{})
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.ErrorContains(t, err, "all keys of this generation", name)
	}
	whole := "\x81\xa1k\x82\xa4data\x01\xa5field\x92\xa7batched\x81\xabkeep_on_cpu\xc2"
	_, err := DecodeItem([][]byte{[]byte(whole)}, Options{})
	require.NoError(t, err)
}

// A number that is no byte makes no signature, instead of one that is cut off to bytes.
func TestSignatureOfNumbersThatAreNoBytes(t *testing.T) {
	for _, n := range []any{int64(256), int64(-1), int64(1 << 32), "x", 1.5} {
		it := NewAddressItem(Address{Address: 8, ID: 1, Signature: Signature{1}}, "image")
		it.Elems[2].Data.([]any)[7] = n
		a, ok, err := ParseAddress(it, Options{})
		require.EqualError(t, err, string(invalidSignature), "%v", n)
		require.True(t, ok)
		require.Zero(t, a)
	}
}
