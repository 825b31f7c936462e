package kv

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/ringcache/ringcache/internal/blake3"
)

// An Algorithm is how chunks are hashed, by the name that LMCache and vLLM have for it in their options.
type Algorithm string

const (
	// BLAKE3 is the default of LMCache's multiprocess server (lmcache/v1/multiprocess/token_hasher.py of 0.5.6):
	// BLAKE3-256 of the hash in front and the tokens, as 32-bit big-endian numbers. It has no seed.
	BLAKE3 Algorithm = "blake3"
	// SHA256CBOR is SHA-256 of the canonical CBOR of the hash in front, the tokens and the extra keys. So vLLM hashes
	// blocks with the option sha256_cbor (vllm/v1/core/kv_cache_utils.py), and so does LMCache with its own. LMCache
	// also knows it as sha256_cbor_64bit.
	SHA256CBOR Algorithm = "sha256_cbor"
	// XXHashCBOR is XXH3-128 of the same CBOR. It is no protection against chunks that somebody made collide.
	XXHashCBOR Algorithm = "xxhash_cbor"
	// Builtin is CPython's own hash of a tuple, the default of LMCache's in-process engine, for 64-bit CPython 3.11
	// and newer. It is the same in each process only if PYTHONHASHSEED is a number.
	Builtin Algorithm = "builtin"
)

// DefaultChunkTokens is the number of tokens in a chunk of LMCache with its defaults.
const DefaultChunkTokens = 256

// Limits of a Scheme.
const (
	maxChunkTokens = 1 << 16 // more than any engine has
	maxSeed        = 1024    // bytes
)

// defaultSeed is vLLM's without a PYTHONHASHSEED. 0.31.0 has it; 0.16.0 and older ones take random bytes instead.
const defaultSeed = "vllm-none-hash"

// A Scheme decides which hashes the chunks of a request have. The zero value is that of a multiprocess server with
// its defaults.
type Scheme struct {
	Algorithm Algorithm // "" is BLAKE3
	// ChunkTokens is the number of tokens in a chunk, or in a block of vLLM. 0 is DefaultChunkTokens.
	ChunkTokens int
	// Seed is the PYTHONHASHSEED of the engines. Without it, SHA256CBOR is seeded as by vLLM 0.31.0 and newer, and
	// XXHashCBOR and Builtin are refused: they are random then, and no two processes agree.
	Seed string
	// Legacy is the form of LMCache's in-process engine (lmcache/v1/token_database.py of 0.5.6): a hash is a number
	// of 64 bits, of which the first 8 bytes of a digest are made before the next step. Builtin needs it, and BLAKE3
	// has no such form.
	Legacy bool
	// KeepTail gives the tokens behind the last whole chunk a hash, too, as LMCache's in-process engine does
	// with save_unfull_chunk.
	KeepTail bool
}

// Validate reports what is wrong with a scheme.
func (s Scheme) Validate() error { return invalid(s.check()) }

func (s Scheme) check() error {
	if s.ChunkTokens < 0 || s.ChunkTokens > maxChunkTokens {
		return fmt.Errorf("scheme: a chunk of %d tokens; 1 to %d are possible", s.ChunkTokens, maxChunkTokens)
	}
	if len(s.Seed) > maxSeed || !utf8.ValidString(s.Seed) {
		return fmt.Errorf("scheme: the seed has more than %d bytes, or is no UTF-8", maxSeed)
	}
	switch s.Algorithm {
	case BLAKE3, "":
		if s.Legacy || s.Seed != "" {
			return fmt.Errorf("scheme: %s has no seed and no legacy form", BLAKE3)
		}
	case SHA256CBOR:
	case XXHashCBOR:
		if s.Seed == "" {
			return fmt.Errorf(
				"scheme: without a seed, %s is random in each process: "+
					"set PYTHONHASHSEED to the same for all engines, and give it as Seed",
				XXHashCBOR)
		}
	case Builtin:
		if !s.Legacy {
			return fmt.Errorf("scheme: %s differs between processes but in its legacy form", Builtin)
		}
		if _, err := pythonSeed(s.Seed); err != nil {
			return err
		}
	default:
		return fmt.Errorf("scheme: no algorithm %q; there are %s, %s, %s and %s", s.Algorithm, BLAKE3, SHA256CBOR, XXHashCBOR, Builtin)
	}
	return nil
}

// A Hasher hashes chunks by one scheme. Any number of goroutines may use it.
type Hasher struct {
	scheme Scheme // with defaults filled in
	size   int    // of a hash, in bytes
	root   []byte // stands in front of the first chunk
	pool   sync.Pool
}

// NewHasher returns a Hasher.
func NewHasher(s Scheme) (*Hasher, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Algorithm == "" {
		s.Algorithm = BLAKE3
	}
	if s.ChunkTokens == 0 {
		s.ChunkTokens = DefaultChunkTokens
	}
	h := &Hasher{scheme: s, size: hashSize(s)}
	h.pool.New = func() any { return newScratch(s) }
	root, err := h.makeRoot()
	if err != nil {
		return nil, err
	}
	h.root = root
	return h, nil
}

// ChunkTokens returns the number of tokens in a chunk.
func (h *Hasher) ChunkTokens() int { return h.scheme.ChunkTokens }

func hashSize(s Scheme) int {
	switch {
	case s.Legacy:
		return 8
	case s.Algorithm == XXHashCBOR:
		return 16
	}
	return 32
}

// makeRoot returns what upstream calls the none hash.
func (h *Hasher) makeRoot() ([]byte, error) {
	seed := h.scheme.Seed
	if seed == "" {
		seed = defaultSeed
	}
	var root []byte
	switch h.scheme.Algorithm {
	case BLAKE3:
		b := blake3.New()
		_, _ = b.Write(make([]byte, 12)) // the number 0 of 8 bytes in front, and the token 0
		root = b.Sum(nil)
	case Builtin:
		key, err := pythonSeed(seed)
		if err != nil {
			return nil, err
		}
		return binary.BigEndian.AppendUint64(nil, uint64(key.hashText(seed))), nil
	default:
		text, err := canonical.Marshal(seed)
		if err != nil {
			return nil, err
		}
		root = h.digest(nil, text)
	}
	return root[:h.size], nil
}

// Text returns a hash as keys contain it: an [ObjectKey] the hexadecimal form of its bytes, and an [EngineKey], which
// is of the legacy form, that of a number.
func (h *Hasher) Text(hash []byte) string {
	if !h.scheme.Legacy {
		return hex.EncodeToString(hash)
	}
	n := binary.BigEndian.Uint64(hash)
	if h.scheme.Algorithm == Builtin {
		return strconv.FormatInt(int64(n), 16)
	}
	return strconv.FormatUint(n, 16)
}

func xxh3Sum(dst, b []byte) []byte {
	sum := xxh3.Hash128(b).Bytes()
	return append(dst, sum[:]...)
}
