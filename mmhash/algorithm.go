package mmhash

import (
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"
	"strings"

	"github.com/zeebo/blake3"
)

// Algorithm is the hash function over the stream. The zero value is BLAKE3,
// vLLM's default.
type Algorithm uint8

const (
	BLAKE3 Algorithm = iota // 32 bytes
	SHA256                  // 32 bytes
	SHA512                  // 64 bytes
)

var algorithms = []string{"blake3", "sha256", "sha512"}

func (a Algorithm) String() string {
	if int(a) < len(algorithms) {
		return algorithms[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// ParseAlgorithm returns the algorithm of a name as vLLM spells it in the
// setting mm_hasher_algorithm (vllm/config/multimodal.py, since 0.27.0) and in
// the environment variable VLLM_MM_HASHER_ALGORITHM (vllm/envs.py, 0.15.0 to
// 0.29.0), where upper case is allowed. The error wraps [ErrInvalid].
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, s := range algorithms {
		if strings.EqualFold(name, s) {
			return Algorithm(i), nil
		}
	}
	return 0, &ValueError{Problem: fmt.Sprintf("unknown hash algorithm %.40q, want blake3, sha256 or sha512", name), sentinel: ErrInvalid}
}

func (a Algorithm) new() (hash.Hash, bool) {
	switch a {
	case BLAKE3:
		return blake3.New(), true
	case SHA256:
		return sha256.New(), true
	case SHA512:
		return sha512.New(), true
	}
	return nil, false
}
