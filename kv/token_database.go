package kv

import (
	"bytes"
	"fmt"
)

// A TokenDatabase cuts the tokens of requests into chunks and makes their keys, as LMCache's in-process engine does
// (lmcache/v1/token_database.py of 0.5.6, and of lmcache.inprocess in 0.5.7). Any number of goroutines may use it.
type TokenDatabase struct {
	hasher    *Hasher
	key       EngineKey // without hash and tags
	segments  bool
	separator []byte // packed
}

// A TokenChunk is a part of a request: its tokens from Start up to, and without, End, and the key of their KV.
type TokenChunk struct {
	Start, End int
	Key        EngineKey
}

// NewTokenDatabase returns the database of chunks of one length, each hashed with all tokens in front of it
// (ChunkedTokenDatabase). The scheme of h is Legacy. worker is what all keys have in common: Hash and Tags
// are filled in. If only the first rank of a model with MLA saves (save_only_first_rank), LMCache's keys have
// World 1.
func NewTokenDatabase(h *Hasher, worker EngineKey) (*TokenDatabase, error) {
	if !h.scheme.Legacy {
		return nil, invalid(fmt.Errorf(
			"token database: the hashes of engine keys are of the legacy form, and the scheme is not"))
	}
	worker.Hash, worker.Tags = "0", nil
	if err := worker.Validate(); err != nil {
		return nil, err
	}
	return &TokenDatabase{hasher: h, key: worker}, nil
}

// NewSegmentDatabase is NewTokenDatabase for blending (SegmentTokenDatabase): the tokens are split wherever the
// separator stands, and each segment, without separators, is hashed alone. ChunkTokens and KeepTail of the scheme have
// no meaning then. The separator is LMCache's blend_special_str as token ids, without the first one, which LMCache
// takes for the tokenizer's start token and drops.
func NewSegmentDatabase(h *Hasher, worker EngineKey, separator []int64) (*TokenDatabase, error) {
	d, err := NewTokenDatabase(h, worker)
	if err != nil {
		return nil, err
	}
	if len(separator) == 0 {
		return nil, invalid(fmt.Errorf("token database: the separator has no tokens"))
	}
	d.segments = true
	d.separator, err = AppendTokens(nil, separator)
	return d, err
}

// Chunks returns the chunks of a request in their order. The first skip tokens are left out: LMCache's mask
// is False for so many tokens at the front, and True behind. They are hashed all the same, as the chunks
// behind depend on them. skip has to be a multiple of the chunk; for segments it only has to be less than the
// number of tokens, and the segments that start in front of it are left out. tags is part of each key: the
// keys share the slice.
//
// A tail that is shorter than a chunk is there if the scheme has KeepTail. Segments may be empty.
func (d *TokenDatabase) Chunks(tokens []int64, skip int, tags []Tag) ([]TokenChunk, error) {
	if err := checkTags(tags); err != nil {
		return nil, invalid(err)
	}
	if d.segments {
		return d.split(tokens, skip, tags)
	}
	size := d.hasher.scheme.ChunkTokens
	if skip < 0 || skip%size != 0 {
		return nil, invalid(fmt.Errorf(
			"the first %d tokens are left out; it must be a multiple of the chunk of %d tokens",
			skip, size))
	}
	chain := d.hasher.NewChain()
	if err := chain.SetTokens(tokens); err != nil {
		return nil, err
	}
	first := min(skip/size, chain.Len())
	out := make([]TokenChunk, 0, chain.Len()-first)
	for i := first; i < chain.Len(); i++ {
		out = append(out, d.chunk(i*size, min((i+1)*size, len(tokens)), d.hasher.Text(chain.Hash(i)), tags))
	}
	return out, nil
}

// Hashed returns chunks whose hashes are known already: numbers in hexadecimal digits, as [Hasher.Text] returns them,
// and how many tokens each has. So a look-up asks that has hashes in place of tokens.
func (d *TokenDatabase) Hashed(hashes []string, lengths []int, tags []Tag) ([]TokenChunk, error) {
	if err := checkTags(tags); err != nil {
		return nil, invalid(err)
	}
	if len(hashes) != len(lengths) {
		return nil, invalid(fmt.Errorf("%d hashes and %d lengths of chunks", len(hashes), len(lengths)))
	}
	out := make([]TokenChunk, 0, len(hashes))
	start := 0
	for i, hash := range hashes {
		if err := checkEngineHash(hash); err != nil {
			return nil, invalid(err)
		}
		if lengths[i] < 0 || lengths[i] > maxLength-start {
			return nil, invalid(fmt.Errorf("chunk %d behind %d tokens has %d tokens", i, start, lengths[i]))
		}
		out = append(out, d.chunk(start, start+lengths[i], hash, tags))
		start += lengths[i]
	}
	return out, nil
}

// maxLength bounds the tokens of a request whose tokens are not here.
const maxLength = 1 << 30

func (d *TokenDatabase) chunk(start, end int, hash string, tags []Tag) TokenChunk {
	key := d.key
	key.Hash, key.Tags = hash, tags
	return TokenChunk{start, end, key}
}

// split returns the segments between separators. Separators that overlap each other end a segment each, which
// is empty, as in LMCache. But LMCache counts the tokens that they share twice then, and all segments behind
// are at wrong places.
//
// See docs/decisions.md, "Segments are where their tokens are".
func (d *TokenDatabase) split(tokens []int64, skip int, tags []Tag) ([]TokenChunk, error) {
	if skip < 0 || skip >= len(tokens) {
		return nil, invalid(fmt.Errorf(
			"the first %d of %d tokens are left out; one at least must be left",
			skip, len(tokens)))
	}
	packed, err := AppendTokens(nil, tokens)
	if err != nil {
		return nil, err
	}
	s := d.hasher.pool.Get().(*scratch)
	defer d.hasher.pool.Put(s)
	var out []TokenChunk
	add := func(start, end int) error {
		if start/tokenSize < skip {
			return nil
		}
		hash, err := d.hasher.step(s, nil, d.hasher.root, packed[start:end], nil)
		if err == nil {
			out = append(out, d.chunk(start/tokenSize, end/tokenSize, d.hasher.Text(hash), tags))
		}
		return err
	}
	start := 0
	for at := 0; at+len(d.separator) <= len(packed); at += tokenSize {
		if !bytes.Equal(packed[at:at+len(d.separator)], d.separator) {
			continue
		}
		if err := add(start, max(start, at)); err != nil {
			return nil, err
		}
		start = at + len(d.separator)
	}
	return out, add(start, len(packed))
}
