package encoder

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// lmcacheDTypes are LMCache's names of dtypes, by torch's (lmcache/utils.py of 0.5.6).
var lmcacheDTypes = map[string]string{
	"float16": "half", "bfloat16": "bfloat16", "float32": "float", "float64": "double",
	"int8": "int8", "uint8": "uint8", "int16": "int16", "int32": "int32", "int64": "int64", "bool": "bool",
	"float8_e4m3fn": "fp8_e4m3fn", "float8_e4m3fnuz": "fp8_e4m3fnuz", "float8_e5m2": "fp8_e5m2", "float8_e5m2fnuz": "fp8_e5m2fnuz",
}

// LMCacheKey returns the key of an encoder's output in LMCache (lmcache/v1/ec_engine.py of 0.5.6):
// `MODEL@1@0@HASH@DTYPE`. One output serves all workers, so the numbers of workers and of the worker are always
// 1 and 0. The hash is the first 8 bytes of the SHA-256 of the identifier, in hexadecimal without leading
// zeros. dtype is torch's name of the output's dtype, such as "bfloat16"; LMCache has no keys for some.
//
// A model with an "@" in its name is refused, since LMCache could not read its own key.
func LMCacheKey(model, dtype, identifier string) (string, error) {
	name, ok := lmcacheDTypes[dtype]
	switch {
	case !ok:
		return "", fmt.Errorf("%w: LMCache has no keys for outputs of dtype %s", errInvalid, quote(dtype))
	case strings.Contains(model, "@"):
		return "", fmt.Errorf("%w: the model %s has an @ in its name, which separates the parts of LMCache's keys", errInvalid, quote(model))
	}
	return model + "@1@0@" + strconv.FormatUint(lmcacheHash(identifier), 16) + "@" + name, nil
}

func lmcacheHash(identifier string) uint64 {
	sum := sha256.Sum256([]byte(identifier))
	return binary.BigEndian.Uint64(sum[:])
}
