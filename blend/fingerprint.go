package blend

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/ringcache/ringcache/kv"
)

// base is that of LMCache's fingerprints (lmcache/v1/multiprocess/token_hasher.py of 0.5.6): 2^64 over the
// golden ratio.
const base = 0x9E3779B97F4A7C15

// Fingerprints returns the fingerprint of each window of so many tokens, at every offset: a polynomial of the
// tokens, modulo 2^64. Of fewer tokens there is none.
func Fingerprints(tokens []int64, window int) []uint64 {
	if window < 1 || len(tokens) < window {
		return nil
	}
	out := make([]uint64, len(tokens)-window+1)
	var f uint64
	first := uint64(1) // the power of the base that the first token of a window has
	for i, t := range tokens[:window] {
		f = f*base + uint64(t)
		if i > 0 {
			first *= base
		}
	}
	out[0] = f
	for i := 1; i < len(out); i++ {
		f = (f-uint64(tokens[i-1])*first)*base + uint64(tokens[i+window-1])
		out[i] = f
	}
	return out
}

// A Match is a chunk that is known, at a place of a prompt: the tokens from Start up to, and without, End.
type Match struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Name  string `json:"name"` // of the chunk's KV, in a [tier.Key]
}

// slotBits is the size of the table of an Index, as in LMCache: 2^20 slots of 4 bytes.
const slotBits = 20

// maxKnown bounds the chunks of an Index: numbers of slots are 32 bits.
const maxKnown = 1 << 28

// An Index knows chunks of one length by their tokens, and finds them at any offset of a prompt. Any number
// of goroutines may use it.
type Index struct {
	hasher *kv.Hasher
	window int

	mu     sync.RWMutex
	slots  []uint32 // number of the first entry, from 1 on; 0 is none
	known  []entry
	free   []uint32
	byName map[string]uint32
}

type entry struct {
	fingerprint uint64
	name        string // empty if it is free
	next        uint32
}

// NewIndex returns an index of chunks of scheme.ChunkTokens, whose names are the hashes of the scheme, in
// hexadecimal digits, of the chunk alone, as if it was the first one of a prompt. A chunk that is the first
// one of a prompt has the same KV, and so it has the same name in a prefix cache.
func NewIndex(scheme kv.Scheme) (*Index, error) {
	h, err := kv.NewHasher(scheme)
	if err != nil {
		return nil, err
	}
	return &Index{
		hasher: h, window: cmp.Or(scheme.ChunkTokens, kv.DefaultChunkTokens), slots: make([]uint32, 1<<slotBits),
		byName: map[string]uint32{},
	}, nil
}

// Window returns the tokens of a chunk.
func (x *Index) Window() int { return x.window }

// Len returns the number of chunks.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byName)
}

// Add adds the chunks of a document, one after the other from its start on, and returns where they are. What
// is left at the end and shorter than a chunk is none.
func (x *Index) Add(document []int64) ([]Match, error) {
	var out []Match
	for start := 0; start+x.window <= len(document); start += x.window {
		m := Match{Start: start, End: start + x.window}
		tokens := document[m.Start:m.End]
		var err error
		if m.Name, err = x.Name(tokens); err != nil {
			return nil, err
		}
		if err := x.Insert(Fingerprints(tokens, x.window)[0], m.Name); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Name returns the name of the chunk of these tokens.
func (x *Index) Name(tokens []int64) (string, error) {
	if len(tokens) != x.window {
		return "", invalid("%d tokens; a chunk has %d", len(tokens), x.window)
	}
	chain := x.hasher.NewChain()
	if err := chain.SetTokens(tokens); err != nil {
		return "", err
	}
	return hex.EncodeToString(chain.Hash(0)), nil
}

func slotOf(fingerprint uint64) uint32 { return uint32(fingerprint * base >> (64 - slotBits)) }

// Insert adds a chunk whose tokens are not here, by its fingerprint and its name.
func (x *Index) Insert(fingerprint uint64, name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.byName[name]; ok {
		return nil
	}
	var at uint32
	switch n := len(x.free); {
	case n > 0:
		at, x.free = x.free[n-1], x.free[:n-1]
	case len(x.known) == maxKnown:
		return fmt.Errorf("blend: the index has %d chunks, and takes no more", maxKnown)
	default:
		x.known = append(x.known, entry{})
		at = uint32(len(x.known))
	}
	slot := &x.slots[slotOf(fingerprint)]
	x.known[at-1] = entry{fingerprint, name, *slot}
	*slot = at
	x.byName[name] = at
	return nil
}

// Remove removes a chunk, and reports whether it was there.
func (x *Index) Remove(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.byName[name]
	if !ok {
		return false
	}
	place := &x.slots[slotOf(x.known[at-1].fingerprint)]
	for *place != at {
		place = &x.known[*place-1].next
	}
	*place = x.known[at-1].next
	x.known[at-1] = entry{}
	x.free = append(x.free, at)
	delete(x.byName, name)
	return true
}

// Find returns the chunks in a prompt, in the order of their starts. They may overlap: see [Greedy] and
// [Optimal]. A fingerprint can be that of other tokens; what is returned has the same hash.
func (x *Index) Find(prompt []int64) ([]Match, error) {
	var out []Match
	for start, f := range Fingerprints(prompt, x.window) {
		if !x.hasFingerprint(f) {
			continue
		}
		name, err := x.Name(prompt[start : start+x.window])
		if err != nil {
			return nil, err
		}
		if x.hasName(name) {
			out = append(out, Match{start, start + x.window, name})
		}
	}
	return out, nil
}

func (x *Index) hasFingerprint(fingerprint uint64) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for at := x.slots[slotOf(fingerprint)]; at != 0; at = x.known[at-1].next {
		if x.known[at-1].fingerprint == fingerprint {
			return true
		}
	}
	return false
}

func (x *Index) hasName(name string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, ok := x.byName[name]
	return ok
}
