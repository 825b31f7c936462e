package kv

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// tokenSize is the size of a packed token: 32 bits, big-endian, as in the token_bytes of LMCache 0.5.7.
const tokenSize = 4

// AppendTokens packs token ids, each as 4 bytes, big-endian. This is the form in which LMCache 0.5.7 sends them
// (lmcache/v1/multiprocess/token_codec.py); 0.5.6 sends numbers.
func AppendTokens(dst []byte, tokens []int64) ([]byte, error) {
	for i, t := range tokens {
		if t < 0 || t > math.MaxUint32 {
			return nil, invalid(fmt.Errorf("token %d at %d: it is no number of 32 bits", t, i))
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(t))
	}
	return dst, nil
}

// AppendPlaceholders packs n values that stand for the placeholder tokens of one image or other item, so that the
// chunks of prompts with different items have different hashes (lmcache/integration/vllm/utils.py of 0.5.6). The
// engine's connector puts them in place before it sends tokens. A placeholder that is cut short has the first values
// of the whole one. The values have 31 bits.
func AppendPlaceholders(dst []byte, identifier string, n int) []byte {
	var input [sha256.Size + 8]byte
	seed := sha256.Sum256([]byte(identifier))
	copy(input[:], seed[:])
	for block := uint64(0); n > 0; block++ {
		binary.BigEndian.PutUint64(input[sha256.Size:], block)
		sum := sha256.Sum256(input[:])
		for i := 0; i < len(sum) && n > 0; i += tokenSize {
			dst = binary.BigEndian.AppendUint32(dst, binary.BigEndian.Uint32(sum[i:])&math.MaxInt32)
			n--
		}
	}
	return dst
}
