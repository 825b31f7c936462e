package mmhash

import (
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/ringcache/ringcache/pycompat"
)

// Options chooses what is hashed, and how. The zero value is the newest known
// vLLM with BLAKE3.
type Options struct {
	// Generation is that of the vLLM whose hashes are wanted; nil means
	// [pycompat.Newest].
	Generation *pycompat.Generation
	// Algorithm is vLLM's setting mm_hasher_algorithm. Releases before 0.15.0
	// have BLAKE3 only.
	Algorithm Algorithm
}

// Validate returns an error that wraps [ErrInvalid] or [ErrUnsupported], or nil.
func (o Options) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns the generation, if the options are valid.
func (o Options) resolve() (*pycompat.Generation, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return nil, err
	}
	if _, ok := o.Algorithm.new(); !ok {
		return nil, &ValueError{Problem: fmt.Sprintf("unknown %v", o.Algorithm), sentinel: ErrInvalid}
	}
	if o.Algorithm != BLAKE3 && !g.Hash.Algorithms {
		return nil, &ValueError{Problem: fmt.Sprintf("vLLM %s hashes with blake3 only, not %v", g.Version, o.Algorithm), sentinel: ErrUnsupported}
	}
	return g, nil
}

// Hasher computes hashes as vLLM of one generation does. It keeps its memory
// from one hash to the next, which makes hashing of images and tensors free of
// allocations; an error leaves it usable. One goroutine may use it at a time.
type Hasher struct {
	s   stream
	h   hash.Hash
	sum []byte
}

// NewHasher makes a Hasher. The error is that of [Options.Validate].
func NewHasher(o Options) (*Hasher, error) {
	g, err := o.resolve()
	if err != nil {
		return nil, err
	}
	h, _ := o.Algorithm.new()
	return &Hasher{s: stream{rules: g.Hash}, h: h}, nil
}

// AppendHex appends the hash of the keyword arguments to dst, as [WriteStream]
// orders them, in lowercase hexadecimal, the form in which vLLM uses hashes: 64
// bytes, or 128 with [SHA512]. On error dst is returned as it was; the error is a
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
	return hex.EncodeToString(h.sum), nil
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
