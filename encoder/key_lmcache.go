package encoder

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/internal/torchdtype"
)

// LMCacheKey returns the key of an encoder's output in LMCache (lmcache/v1/ec_engine.py of 0.5.6):
// `MODEL@1@0@HASH@DTYPE`. One output serves all workers, so the numbers of workers and of the worker are always
// 1 and 0. The hash is the first 8 bytes of the SHA-256 of the identifier, in hexadecimal without leading
// zeros. dtype is torch's name of the output's dtype, such as "bfloat16"; LMCache has no keys for some.
//
// A model with an "@" in its name is refused, since LMCache could not read its own key.
func LMCacheKey(model, dtype, identifier string) (string, error) {
	known := torchdtype.Find(dtype)
	switch {
	case known == nil:
		return "", fmt.Errorf("%w: LMCache has no keys for outputs of dtype %s", errInvalid, quote(dtype))
	case strings.Contains(model, "@"):
		return "", fmt.Errorf("%w: the model %s has an @ in its name, which separates the parts of LMCache's keys",
			errInvalid, quote(model))
	}
	return model + "@1@0@" + strconv.FormatUint(lmcacheHash(identifier), 16) + "@" + known.LMCache, nil
}

func lmcacheHash(identifier string) uint64 {
	sum := sha256.Sum256([]byte(identifier))
	return binary.BigEndian.Uint64(sum[:])
}
