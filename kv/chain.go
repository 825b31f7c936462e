package kv

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
)

// A Chain is the hashes of one request's chunks: each covers its own tokens and all in front of them. It keeps the
// tokens, 4 bytes for each, so that what was hashed once is hashed again only where tokens differ. One goroutine may
// use it at a time.
//
// See docs/decisions.md, "A chain of hashes keeps its tokens".
type Chain struct {
	hasher *Hasher
	tokens []byte // packed, of the chunks in hashes
	hashes []byte // of all chunks, one behind the other
	plain  int    // how many chunks, from the first on, were hashed without extra keys
}

// NewChain returns a chain without chunks.
func (h *Hasher) NewChain() *Chain { return &Chain{hasher: h} }

// Set makes c the chain of these packed tokens, from the first token of the request on. Chunks that c has
// already are compared, not hashed. Tokens behind the last whole chunk are left out, but see
// [Scheme].KeepTail. packed is not kept.
func (c *Chain) Set(packed []byte) error {
	s := c.hasher.pool.Get().(*scratch)
	defer c.hasher.pool.Put(s)
	return c.set(s, packed)
}

// SetTokens is Set with tokens as LMCache 0.5.6 sends them.
func (c *Chain) SetTokens(tokens []int64) error {
	s := c.hasher.pool.Get().(*scratch)
	defer c.hasher.pool.Put(s)
	packed, err := AppendTokens(s.packed[:0], tokens)
	if err != nil {
		return err
	}
	if cap(packed) <= maxKept {
		s.packed = packed
	}
	return c.set(s, packed)
}

func (c *Chain) set(s *scratch, packed []byte) error {
	if len(packed)%tokenSize != 0 {
		return invalid(fmt.Errorf("tokens: %d bytes are no whole number of tokens of %d bytes", len(packed), tokenSize))
	}
	stride := c.hasher.stride()
	if !c.hasher.scheme.KeepTail {
		packed = packed[:len(packed)/stride*stride]
	}
	kept := 0
	for most := min(c.plain, len(c.tokens)/stride, len(packed)/stride); kept < most; kept++ {
		at := kept * stride
		if !bytes.Equal(c.tokens[at:at+stride], packed[at:at+stride]) {
			break
		}
	}
	c.cut(kept)
	rest := packed[kept*stride:]
	c.tokens = append(c.tokens, rest...)
	// A step may append a whole digest before the end of it is cut off.
	c.hashes = slices.Grow(c.hashes, (len(rest)+stride-1)/stride*c.hasher.size+sha256.Size)
	for len(rest) > 0 {
		n := min(stride, len(rest))
		if err := c.add(s, rest[:n], nil); err != nil {
			c.cut(kept)
			return err
		}
		rest = rest[n:]
	}
	c.plain = c.Len()
	return nil
}

// cut forgets the chunks behind the first n.
func (c *Chain) cut(n int) {
	c.tokens, c.hashes = c.tokens[:n*c.hasher.stride()], c.hashes[:n*c.hasher.size]
	c.plain = min(c.plain, n)
}

func (c *Chain) add(s *scratch, chunk, extra []byte) error {
	previous := c.hasher.root
	if n := c.Len(); n > 0 {
		previous = c.Hash(n - 1)
	}
	hashes, err := c.hasher.step(s, c.hashes, previous, chunk, extra)
	if err == nil {
		c.hashes = hashes
	}
	return err
}

// AppendBlock adds one block of vLLM with extra keys. The scheme is SHA256CBOR or XXHashCBOR, not Legacy.
//
// An extra key is a string, an int, a []byte, nil, or a []any of such for a tuple. vLLM's order is LoRA, media, salt,
// prompt embeddings (generate_block_hash_extra_keys in vllm/v1/core/kv_cache_utils.py). 0.31.0 and newer have tuples:
// ("lora", name, path), ("mm", identifier, offset of the item's first token from that of the block), ("cache_salt",
// salt) in the first block, and ("prompt_embeds", SHA-256 of the block's bytes). 0.16.0 has the name of the LoRA, the
// identifier, the salt and the bytes by themselves, and 0.11.0 the number of the LoRA.
//
// A later Set hashes the blocks from the first one with extra keys on again.
func (c *Chain) AppendBlock(packed []byte, extra ...any) error {
	if c.hasher.scheme.Legacy || c.hasher.scheme.Algorithm == BLAKE3 {
		return invalid(fmt.Errorf("%s, legacy %t, has no blocks with extra keys", c.hasher.scheme.Algorithm, c.hasher.scheme.Legacy))
	}
	if len(packed) != c.hasher.stride() || len(c.tokens)%c.hasher.stride() != 0 {
		return invalid(fmt.Errorf("a block of %d bytes behind %d; each has %d", len(packed), len(c.tokens), c.hasher.stride()))
	}
	keys, err := encodeExtra(extra)
	if err != nil {
		return invalid(err)
	}
	s := c.hasher.pool.Get().(*scratch)
	defer c.hasher.pool.Put(s)
	if err := c.add(s, packed, keys); err != nil {
		return err
	}
	c.tokens = append(c.tokens, packed...)
	if len(extra) == 0 && c.plain == c.Len()-1 {
		c.plain++
	}
	return nil
}

// Len returns the number of chunks.
func (c *Chain) Len() int { return len(c.hashes) / c.hasher.size }

// Hash returns the hash of chunk i. It is valid until the next change of c, and must not be changed.
func (c *Chain) Hash(i int) []byte {
	at := i * c.hasher.size
	return c.hashes[at : at+c.hasher.size : at+c.hasher.size]
}

// Range returns the chunks that lie in the tokens from start up to, and without, end, as LMCache's look-ups have it:
// both are rounded down to a chunk and end at the length of c. No chunks are first == last.
func (c *Chain) Range(start, end int) (first, last int) {
	size := c.hasher.scheme.ChunkTokens
	last = min(max(end, 0)/size, len(c.tokens)/(tokenSize*size))
	first = min(max(start, 0)/size, last)
	return first, last
}

func (h *Hasher) stride() int { return h.scheme.ChunkTokens * tokenSize }
