package remotemetadata

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAppendOne has the bytes that LMCache 0.5.6 wrote for a chunk of a model with 32 layers.
func TestAppendOne(t *testing.T) {
	b, err := AppendOne([]byte{9}, 1, "bfloat16", 2, 32, 256, 1024)
	require.NoError(t, err)
	require.Equal(t, "0900000002010000000300000002000000200000000001000000040000", hex.EncodeToString(b))
	require.NoError(t, CheckStrictly(b[1:]))
	b, err = AppendOne(nil, 2, "float16", 3, 2, 8)
	require.NoError(t, err)
	require.Equal(t, "60000000"+"02000000"+"02000000"+"03000000"+"02000000"+"08000000"+"00000000",
		hex.EncodeToString(b))
	for text, err := range map[string]error{
		`no number for the dtype "int8"`:             second(AppendOne(nil, 1, "int8", 1)),
		`no number for the dtype ""`:                 second(AppendOne(nil, 1, "", 1)),
		"the format 9 and 1 dimensions":              second(AppendOne(nil, 9, "uint8", 1)),
		"the format 1 and 0 dimensions":              second(AppendOne(nil, 1, "uint8")),
		"the format 1 and 5 dimensions":              second(AppendOne(nil, 1, "uint8", 1, 1, 1, 1, 1)),
		"a tensor of the shape [2 0]":                second(AppendOne(nil, 1, "uint8", 2, 0)),
		"a tensor of the shape [1073741824 2]":       second(AppendOne(nil, 1, "uint8", 1<<30, 2)),
		"a tensor of the shape [4611686018427387904": second(AppendOne(nil, 1, "float64", 1<<62, 4)),
	} {
		require.ErrorContains(t, err, text)
	}
}

func second(_ []byte, err error) error { return err }
