package kv

import (
	"bytes"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/invariants"
)

// schemes are one of each kind, with small chunks.
func schemes() []Scheme {
	return []Scheme{
		{ChunkTokens: 3},
		{Algorithm: BLAKE3, ChunkTokens: 4, KeepTail: true},
		{Algorithm: SHA256CBOR, ChunkTokens: 2},
		{Algorithm: XXHashCBOR, ChunkTokens: 5, Seed: "x"},
		{Algorithm: SHA256CBOR, ChunkTokens: 3, Seed: "42", Legacy: true},
		{Algorithm: XXHashCBOR, ChunkTokens: 3, Seed: "42", Legacy: true, KeepTail: true},
		{Algorithm: Builtin, ChunkTokens: 3, Seed: "7", Legacy: true, KeepTail: true},
	}
}

// TestContinuedChainIsAChainAtOnce: whatever a chain was before, Set makes it the chain of the tokens.
func TestContinuedChainIsAChainAtOnce(t *testing.T) {
	var hashers []*Hasher
	for _, s := range schemes() {
		hashers = append(hashers, newHasher(t, s))
	}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom(hashers).Draw(t, "scheme")
		chain := h.NewChain()
		var tokens []int64
		for range rapid.IntRange(1, 6).Draw(t, "calls") {
			// Some are continued, some cut, some changed in the middle.
			tokens = tokens[:rapid.IntRange(0, len(tokens)).Draw(t, "kept")]
			tokens = append(slices.Clone(tokens), rapid.SliceOfN(rapid.Int64Range(0, 2), 0, 12).Draw(t, "more")...)
			if rapid.Bool().Draw(t, "packed") {
				require.NoError(t, chain.Set(mustPack(tokens)))
			} else {
				require.NoError(t, chain.SetTokens(tokens))
			}
			once := h.NewChain()
			require.NoError(t, once.Set(mustPack(tokens)))
			require.Equal(t, once.texts(), chain.texts())
			want := len(tokens) / h.scheme.ChunkTokens
			if h.scheme.KeepTail && len(tokens)%h.scheme.ChunkTokens > 0 {
				want++
			}
			require.Equal(t, want, chain.Len())
		}
	})
}

func mustPack(tokens []int64) []byte {
	b, err := AppendTokens(nil, tokens)
	if err != nil {
		panic(err)
	}
	return b
}

// TestChainsMeetOnlyInEqualPrefixes: the hash of a chunk stands for all tokens up to its end.
func TestChainsMeetOnlyInEqualPrefixes(t *testing.T) {
	var hashers []*Hasher
	for _, s := range schemes() {
		hashers = append(hashers, newHasher(t, s))
	}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom(hashers).Draw(t, "scheme")
		a := rapid.SliceOfN(rapid.Int64Range(0, 1), 0, 16).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Int64Range(0, 1), 0, 16).Draw(t, "b")
		one, other := h.NewChain(), h.NewChain()
		require.NoError(t, one.SetTokens(a))
		require.NoError(t, other.SetTokens(b))
		for i := range min(one.Len(), other.Len()) {
			end := (i + 1) * h.scheme.ChunkTokens
			equal := slices.Equal(a[:min(end, len(a))], b[:min(end, len(b))])
			require.Equal(t, equal, bytes.Equal(one.Hash(i), other.Hash(i)), "chunk %d of %v and %v", i, a, b)
		}
	})
}

// TestSetHashesOnlyWhatDiffers: what a chain has already is not hashed again. A hash that was changed on
// purpose shows it.
func TestSetHashesOnlyWhatDiffers(t *testing.T) {
	chain := newHasher(t, Scheme{ChunkTokens: 2}).NewChain()
	require.NoError(t, chain.SetTokens([]int64{1, 2, 3, 4}))
	chain.Hash(0)[0] ^= 1
	marked := bytes.Clone(chain.Hash(0))
	require.NoError(t, chain.SetTokens([]int64{1, 2, 3, 4, 5, 6, 7}))
	require.Equal(t, 3, chain.Len())
	require.Equal(t, marked, chain.Hash(0))
	require.NoError(t, chain.SetTokens([]int64{1, 9, 3, 4}))
	require.NotEqual(t, marked, chain.Hash(0))
}

func TestRange(t *testing.T) {
	chain := newHasher(t, Scheme{ChunkTokens: 4, KeepTail: true}).NewChain()
	require.NoError(t, chain.SetTokens(make([]int64, 15)))
	for _, c := range []struct{ start, end, first, last int }{
		{0, 15, 0, 3}, {0, 16, 0, 3}, {0, math.MaxInt, 0, 3}, {4, 12, 1, 3}, {5, 11, 1, 2}, {3, 7, 0, 1},
		{8, 8, 2, 2}, {8, 4, 1, 1}, {100, 200, 3, 3}, {-5, 9, 0, 2}, {0, -1, 0, 0},
	} {
		first, last := chain.Range(c.start, c.end)
		require.Equal(t, [2]int{c.first, c.last}, [2]int{first, last}, "%+v", c)
	}
}

func TestBlocks(t *testing.T) {
	h := newHasher(t, Scheme{Algorithm: SHA256CBOR, ChunkTokens: 2})
	one, two := mustPack([]int64{1, 2}), mustPack([]int64{3, 4})
	chain, plain := h.NewChain(), h.NewChain()
	require.NoError(t, plain.Set(slices.Concat(one, two)))
	require.NoError(t, chain.AppendBlock(one))
	require.NoError(t, chain.AppendBlock(two))
	require.Equal(t, plain.texts(), chain.texts(), "blocks without extra keys are chunks")

	require.NoError(t, chain.Set(one))
	require.NoError(t, chain.AppendBlock(two, []any{"cache_salt", "alice"}))
	require.Equal(t, plain.Hash(0), chain.Hash(0))
	require.NotEqual(t, plain.Hash(1), chain.Hash(1))
	require.NoError(t, chain.AppendBlock(one))
	require.NoError(t, chain.Set(slices.Concat(one, two)), "Set has no extra keys")
	require.Equal(t, plain.texts(), chain.texts())

	for _, extra := range []any{1.5, uint8(1), []string{"a"}, map[string]any{}, []any{[]any{}}, "\xff", strings.Repeat("a", maxExtra)} {
		require.ErrorIs(t, chain.AppendBlock(one, extra), fs.ErrInvalid, "%T", extra)
	}
	require.ErrorIs(t, chain.AppendBlock(one[:4], "a"), fs.ErrInvalid)
	require.Equal(t, plain.texts(), chain.texts(), "what was refused left nothing behind")
	for _, s := range []Scheme{{}, {Algorithm: SHA256CBOR, Legacy: true}, {Algorithm: Builtin, Seed: "0", Legacy: true}} {
		c := newHasher(t, s).NewChain()
		require.ErrorIs(t, c.AppendBlock(make([]byte, c.hasher.stride())), fs.ErrInvalid)
	}
	tail := newHasher(t, Scheme{Algorithm: SHA256CBOR, ChunkTokens: 2, KeepTail: true}).NewChain()
	require.NoError(t, tail.Set(one[:4]))
	require.ErrorIs(t, tail.AppendBlock(one), fs.ErrInvalid, "nothing is behind a tail")
}

func TestRefusedSchemes(t *testing.T) {
	for _, c := range []struct {
		scheme Scheme
		want   string
	}{
		{Scheme{Algorithm: "sha256"}, `no algorithm "sha256"`},
		{Scheme{ChunkTokens: -1}, "1 to 65536"},
		{Scheme{ChunkTokens: maxChunkTokens + 1}, "1 to 65536"},
		{Scheme{Seed: "0"}, "no seed"},
		{Scheme{Legacy: true}, "no legacy form"},
		{Scheme{Algorithm: XXHashCBOR}, "set PYTHONHASHSEED"},
		{Scheme{Algorithm: Builtin, Seed: "0"}, "legacy"},
		{Scheme{Algorithm: Builtin, Legacy: true}, "0 to 4294967295"},
		{Scheme{Algorithm: Builtin, Legacy: true, Seed: "random"}, "0 to 4294967295"},
		{Scheme{Algorithm: Builtin, Legacy: true, Seed: "4294967296"}, "0 to 4294967295"},
		{Scheme{Algorithm: Builtin, Legacy: true, Seed: "+1"}, "0 to 4294967295"},
		{Scheme{Algorithm: SHA256CBOR, Seed: "\xff"}, "UTF-8"},
		{Scheme{Algorithm: SHA256CBOR, Seed: strings.Repeat("1", maxSeed+1)}, "1024 bytes"},
	} {
		_, err := NewHasher(c.scheme)
		require.ErrorIs(t, err, fs.ErrInvalid, "%+v", c.scheme)
		require.ErrorContains(t, err, c.want)
	}
	require.Equal(t, Scheme{Algorithm: BLAKE3, ChunkTokens: DefaultChunkTokens}, newHasher(t, Scheme{}).scheme)
}

// TestAllocations: nothing is allocated for a chunk.
func TestAllocations(t *testing.T) {
	if invariants.Enabled {
		t.Skip("under the race detector a sync.Pool loses some of what it holds")
	}
	tokens := make([]int64, 1000*8)
	for i := range tokens {
		tokens[i] = int64(i * 7919 % 152000)
	}
	b := mustPack(tokens)
	for _, s := range schemes() {
		s.ChunkTokens = 8
		chain := newHasher(t, s).NewChain()
		require.NoError(t, chain.Set(b))
		require.Less(t, testing.AllocsPerRun(20, func() {
			_ = chain.Set(b[:4])
			_ = chain.Set(b)
			_ = chain.SetTokens(tokens)
		}), 1.0, "%+v", s)
	}
	dst := make([]byte, 0, 1024)
	key := ObjectKey{Hash: make([]byte, 32), Model: "org/model", Rank: 0x01000100, Salt: "alice"}
	require.Zero(t, testing.AllocsPerRun(100, func() { dst, _ = key.AppendText(dst[:0]) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { dst = AppendPlaceholders(dst[:0], "img0", 200) }))
}

// BenchmarkChain hashes 1,000 chunks of 256 tokens.
func BenchmarkChain(b *testing.B) {
	tokens := make([]int64, 1000*DefaultChunkTokens)
	for i := range tokens {
		tokens[i] = int64(i * 7919 % 152000)
	}
	data := mustPack(tokens)
	for name, s := range map[string]Scheme{
		"blake3": {}, "sha256_cbor": {Algorithm: SHA256CBOR}, "xxhash_cbor": {Algorithm: XXHashCBOR, Seed: "0"},
		"legacy_sha256_cbor": {Algorithm: SHA256CBOR, Seed: "0", Legacy: true}, "builtin": {Algorithm: Builtin, Seed: "0", Legacy: true},
	} {
		h := newHasher(b, s)
		b.Run(name, func(b *testing.B) {
			chain := h.NewChain()
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := chain.Set(nil); err != nil {
					b.Fatal(err)
				}
				if err := chain.Set(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("known", func(b *testing.B) {
		chain := newHasher(b, Scheme{}).NewChain()
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if err := chain.Set(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
