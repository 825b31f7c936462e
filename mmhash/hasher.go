package mmhash

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"github.com/ringcache/ringcache/internal/blake3"
	"github.com/ringcache/ringcache/pycompat"
)

// Options chooses what is hashed, and how. The zero value is the newest known
// vLLM with BLAKE3.
type Options struct {
	// Generation is that of the vLLM whose hashes are wanted; nil means
	// [pycompat.Newest].
	Generation *pycompat.Generation
	// Algorithm is vLLM's name of the hash function over the stream: "blake3"
	// (also if Algorithm is empty), "sha256" or "sha512". It is the setting
	// mm_hasher_algorithm (vllm/config/multimodal.py, since 0.27.0) or the
	// environment variable VLLM_MM_HASHER_ALGORITHM (vllm/envs.py, 0.15.0 to
	// 0.29.0), where upper case is allowed, and so it is here. Releases before
	// 0.15.0 have blake3 only.
	Algorithm string
}

// Hasher computes hashes as vLLM of one generation does. It keeps its memory
// from one hash to the next, which makes hashing of images and tensors free of
// allocations, but for what helpers need from 1 MiB on; an error leaves it usable.
// It takes about 30 KiB. One goroutine may use it at a time.
type Hasher struct {
	s   stream
	h   hash.Hash
	sum []byte
}

// NewHasher makes a Hasher. The error wraps [fs.ErrInvalid] or [ErrUnsupported].
func NewHasher(o Options) (*Hasher, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(o.Algorithm)
	h := newHash(name)
	switch {
	case h == nil:
		return nil, &ValueError{
			Problem:  fmt.Sprintf("unknown hash algorithm %.40q, want blake3, sha256 or sha512", o.Algorithm),
			sentinel: errInvalid,
		}
	case name != "" && name != blake3Name && !g.Hash.Algorithms:
		return nil, &ValueError{
			Problem: fmt.Sprintf("vLLM %s hashes with blake3 only, not %s", g.Version, name), sentinel: ErrUnsupported,
		}
	}
	return &Hasher{s: stream{rules: g.Hash}, h: h}, nil
}

const blake3Name = "blake3"

// newHash returns nil for a name that vLLM does not have.
func newHash(algorithm string) hash.Hash {
	switch algorithm {
	case blake3Name, "":
		return blake3.New()
	case "sha256":
		return sha256.New()
	case "sha512":
		return sha512.New()
	}
	return nil
}

// AppendHex appends the hash of the keyword arguments to dst, as [WriteStream]
// orders them, in lowercase hexadecimal, the form in which vLLM uses hashes: 64
// bytes, or 128 with sha512. On error dst is returned as it was; the error is a
// [ValueError] or what a [Reader] returned.
func (h *Hasher) AppendHex(dst []byte, args ...Entry) ([]byte, error) {
	if err := h.hash(args); err != nil {
		return dst, err
	}
	return hex.AppendEncode(dst, h.sum), nil
}

// Hex returns the hash of the keyword arguments as vLLM's
// MultiModalHasher.hash_kwargs does.
func (h *Hasher) Hex(args ...Entry) (string, error) {
	if err := h.hash(args); err != nil {
		return "", err
	}
	var text [2 * sha512.Size]byte
	return string(hex.AppendEncode(text[:0], h.sum)), nil
}

func (h *Hasher) hash(args []Entry) error {
	h.h.Reset()
	h.s.reset(h.h)
	if err := h.s.kwargs(args); err != nil {
		return err
	}
	h.sum = h.h.Sum(h.sum[:0])
	return nil
}
