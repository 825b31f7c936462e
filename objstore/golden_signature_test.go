package objstore

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
)

func TestGoldenSignatures(t *testing.T) {
	for _, f := range goldentest.Files(t, "signatures") {
		var d struct {
			Sign []struct {
				Secret, Key, Payload, Signature string
				Address, ID                     json.RawMessage
				Result                          json.RawMessage
			}
		}
		f.Decode(t, &d)
		signed, unrepresentable := 0, 0
		var s signer // one for every secret
		for _, c := range d.Sign {
			if c.Result != nil {
				unrepresentable++ // negative, 2^64, id 2^32, lone surrogate: not values of our types
				continue
			}
			got := s.sign(goldentest.Hex(t, c.Secret), c.Key, goldentest.Unmarshal[uint64](t, c.Address), goldentest.Unmarshal[uint32](t, c.ID))
			require.Equal(t, c.Signature, hex.EncodeToString(got[:]), c.Key)
			signed++
		}
		require.NotZero(t, signed)
		t.Logf("%s: %d signatures; not expressible in Go's types: %d; releases %v", f.Name, signed, unrepresentable, f.Releases)
	}
}
