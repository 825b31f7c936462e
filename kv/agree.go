package kv

import (
	"fmt"
	"strconv"
	"strings"
)

// Agree returns nil if a peer's hash can be one of h: if it is the hash that h makes of tokens, which are the
// first chunk of a request. Without tokens, as in a look-up, it only says whether the hash has the form of
// h's. Peers that disagree find nothing of each other, and no other error tells them so. The error says what
// makes the peer's hash, if it is an algorithm of LMCache with a seed that is often used: mostly
// PYTHONHASHSEED is not the same, or not set.
//
// hash is a text as [Hasher.Text] returns it, of the legacy form.
func (h *Hasher) Agree(hash string, tokens []int64) error {
	if !h.scheme.Legacy {
		return invalid(fmt.Errorf("only hashes of the legacy form are compared"))
	}
	if err := h.agreeForm(hash); err != nil || tokens == nil {
		return err
	}
	own, err := h.first(tokens)
	if err != nil || own == hash {
		return err
	}
	for _, algorithm := range []Algorithm{SHA256CBOR, Builtin, XXHashCBOR} {
		for _, seed := range []string{"", "0", "1", "42", "123", "1234", "12345", "123456", "random", h.scheme.Seed} {
			other, err := NewHasher(Scheme{
				Algorithm: algorithm, ChunkTokens: max(len(tokens), 1), Seed: seed,
				Legacy: true, KeepTail: true,
			})
			if err != nil {
				continue // the algorithm has no such seed
			}
			if theirs, err := other.first(tokens); err == nil && theirs == hash {
				return fmt.Errorf(
					"kv: a peer hashes with %s, here it is %s: neither finds what the other stores",
					other.scheme.text(), h.scheme.text())
			}
		}
	}
	return fmt.Errorf(
		"kv: a peer hashes otherwise than %s, and with no seed that is often used: "+
			"is PYTHONHASHSEED not set there, or has it other tokens?",
		h.scheme.text())
}

// agreeForm refuses numbers that the algorithm never makes: about half of the numbers of the other ones.
func (h *Hasher) agreeForm(hash string) error {
	if err := checkEngineHash(hash); err != nil {
		return invalid(err)
	}
	if h.scheme.Algorithm == Builtin {
		if _, err := strconv.ParseInt(hash, 16, 64); err != nil {
			return fmt.Errorf(
				"kv: the hash %s of a peer is no number of %s: "+
					"the peer has another algorithm than %s",
				hash, Builtin, h.scheme.text())
		}
		return nil
	}
	if strings.HasPrefix(hash, "-") {
		return fmt.Errorf(
			"kv: the hash %s of a peer is negative: it is of %s, and here it is %s",
			hash, Builtin, h.scheme.text())
	}
	if _, err := strconv.ParseUint(hash, 16, 64); err != nil {
		return fmt.Errorf("kv: the hash %s of a peer has more than 64 bits, unlike those of %s", hash, h.scheme.text())
	}
	return nil
}

// first returns the hash of the first tokens of a request, as one chunk.
func (h *Hasher) first(tokens []int64) (string, error) {
	packed, err := AppendTokens(nil, tokens)
	if err != nil {
		return "", err
	}
	s := h.pool.Get().(*scratch)
	defer h.pool.Put(s)
	hash, err := h.step(s, nil, h.root, packed, nil)
	if err != nil {
		return "", err
	}
	return h.Text(hash), nil
}

// text names the algorithm and the seed.
func (s Scheme) text() string {
	if s.Seed == "" {
		return string(s.Algorithm) + " without PYTHONHASHSEED"
	}
	return string(s.Algorithm) + " with PYTHONHASHSEED=" + s.Seed
}
