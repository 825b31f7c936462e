package blend_test

import (
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/kv"
)

// TestFingerprintsAreLMCaches: the vectors were made by LMCache 0.5.6 (rolling_hash_windows_numba,
// chunk_hash_windows_numba).
func TestFingerprintsAreLMCaches(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "fingerprints.json"))
	require.NoError(t, err)
	var vectors []struct {
		Tokens          []int64
		K               int
		Rolling, Chunks []string
	}
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.NotEmpty(t, vectors)
	compared := 0
	for _, v := range vectors {
		all := blend.Fingerprints(v.Tokens, v.K)
		require.Len(t, all, len(v.Rolling))
		for i, f := range all {
			require.Equal(t, v.Rolling[i], strconv.FormatUint(f, 10))
			compared++
			if i%v.K == 0 {
				require.Equal(t, v.Chunks[i/v.K], strconv.FormatUint(f, 10), "of a chunk")
			}
		}
	}
	t.Logf("%d fingerprints", compared)
	require.Empty(t, blend.Fingerprints([]int64{1, 2}, 3))
	require.Empty(t, blend.Fingerprints(nil, 0))
}

func TestIndexFindsChunksAtAnyOffset(t *testing.T) {
	index, err := blend.NewIndex(kv.Scheme{ChunkTokens: 16})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	a, b := randomTokens(r, 40, 1000), randomTokens(r, 33, 1000)
	inA, err := index.Add(a)
	require.NoError(t, err)
	require.Equal(t, []int{0, 16, 16, 32}, []int{inA[0].Start, inA[0].End, inA[1].Start, inA[1].End})
	inB, err := index.Add(b)
	require.NoError(t, err)
	_, err = index.Add(b) // again
	require.NoError(t, err)
	require.Equal(t, 4, index.Len())

	prompt := slices.Concat([]int64{1, 2, 3}, b, []int64{4}, a[16:], []int64{5})
	found, err := index.Find(prompt)
	require.NoError(t, err)
	want := []blend.Match{
		{Start: 3, End: 19, Name: inB[0].Name},
		{Start: 19, End: 35, Name: inB[1].Name},
		{Start: 37, End: 53, Name: inA[1].Name},
	}
	require.Equal(t, want, found)
	require.Equal(t, []blend.Range{{Start: 0, End: 3}, {Start: 35, End: 37}, {Start: 53, End: 62}},
		blend.Gaps(found, len(prompt)))

	require.True(t, index.Remove(inB[1].Name))
	require.False(t, index.Remove(inB[1].Name))
	found, err = index.Find(prompt)
	require.NoError(t, err)
	require.Equal(t, []blend.Match{want[0], want[2]}, found)

	// The first chunk of a prompt has the name that it has in a prefix cache.
	hasher, err := kv.NewHasher(kv.Scheme{ChunkTokens: 16})
	require.NoError(t, err)
	chain := hasher.NewChain()
	require.NoError(t, chain.SetTokens(a))
	require.Equal(t, hex.EncodeToString(chain.Hash(0)), inA[0].Name)
}

// TestEqualFingerprintsOfOtherTokens: the hash decides. The tokens were found by lattice reduction.
func TestEqualFingerprintsOfOtherTokens(t *testing.T) {
	x, y := []int64{559805, 1966853, 1137922}, []int64{0, 0, 0}
	require.Equal(t, blend.Fingerprints(x, 3), blend.Fingerprints(y, 3))
	index, err := blend.NewIndex(kv.Scheme{ChunkTokens: 3})
	require.NoError(t, err)
	_, err = index.Add(x)
	require.NoError(t, err)
	found, err := index.Find(y)
	require.NoError(t, err)
	require.Empty(t, found)
	// Both may be known, and either may go.
	for _, gone := range [][]int64{y, x} { // the one in front of the other, then the other one
		names := map[int64]string{}
		for _, tokens := range [][]int64{x, y} {
			m, err := index.Add(tokens)
			require.NoError(t, err)
			names[tokens[0]] = m[0].Name
		}
		require.True(t, index.Remove(names[gone[0]]))
		for _, tokens := range [][]int64{x, y} {
			found, err = index.Find(tokens)
			require.NoError(t, err)
			require.Equal(t, tokens[0] != gone[0], len(found) == 1)
		}
	}
}

// TestIndexIsAMap compares with a map of token texts, under additions and removals.
func TestIndexIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 2
		index, err := blend.NewIndex(kv.Scheme{ChunkTokens: window})
		require.NoError(t, err)
		names := map[[window]int64]string{}
		chunk := rapid.Custom(func(t *rapid.T) [window]int64 {
			return [window]int64{rapid.Int64Range(0, 5).Draw(t, "a"), rapid.Int64Range(0, 5).Draw(t, "b")}
		})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c := chunk.Draw(t, "chunk")
			if rapid.Bool().Draw(t, "add") {
				m, err := index.Add(c[:])
				require.NoError(t, err)
				names[c] = m[0].Name
			} else {
				name, ok := names[c]
				require.Equal(t, ok, index.Remove(name))
				delete(names, c)
			}
		}
		require.Equal(t, len(names), index.Len())
		prompt := rapid.SliceOfN(rapid.Int64Range(0, 5), 0, 30).Draw(t, "prompt")
		var want []blend.Match
		for i := 0; i+window <= len(prompt); i++ {
			if name, ok := names[[window]int64(prompt[i:i+window])]; ok {
				want = append(want, blend.Match{Start: i, End: i + window, Name: name})
			}
		}
		found, err := index.Find(prompt)
		require.NoError(t, err)
		require.Equal(t, want, found)
	})
}

// TestNamesOfOtherLengthsAreRefused: of fewer tokens Name panicked, and of more it was the name of the first
// ones.
func TestNamesOfOtherLengthsAreRefused(t *testing.T) {
	index, err := blend.NewIndex(kv.Scheme{ChunkTokens: 2})
	require.NoError(t, err)
	for _, tokens := range [][]int64{nil, {1}, {1, 2, 3}, {1, 2, 3, 4}} {
		_, err = index.Name(tokens)
		require.ErrorIs(t, err, fs.ErrInvalid, "%v", tokens)
	}
}

func TestTokensThatAreNone(t *testing.T) {
	index, err := blend.NewIndex(kv.Scheme{ChunkTokens: 2})
	require.NoError(t, err)
	_, err = index.Add([]int64{1, -1})
	require.Error(t, err)
	_, err = blend.NewIndex(kv.Scheme{ChunkTokens: -1})
	require.Error(t, err)
	index, err = blend.NewIndex(kv.Scheme{})
	require.NoError(t, err)
	require.Equal(t, kv.DefaultChunkTokens, index.Window())
}

func TestGreedyAndOptimal(t *testing.T) {
	m := func(start, end int) blend.Match { return blend.Match{Start: start, End: end} }
	for _, c := range []struct{ all, greedy, optimal []blend.Match }{
		{nil, nil, nil},
		{[]blend.Match{m(0, 4), m(4, 8)}, []blend.Match{m(0, 4), m(4, 8)}, []blend.Match{m(0, 4), m(4, 8)}},
		// What starts first stands in the way of more.
		{[]blend.Match{m(0, 4), m(3, 9)}, []blend.Match{m(0, 4)}, []blend.Match{m(3, 9)}},
		{
			[]blend.Match{m(0, 4), m(1, 5), m(5, 9), m(4, 6)},
			[]blend.Match{m(0, 4), m(4, 6)}, []blend.Match{m(0, 4), m(5, 9)},
		},
		// Equal tokens: one chunk rather than two.
		{[]blend.Match{m(0, 4), m(4, 8), m(0, 8)}, []blend.Match{m(0, 8)}, []blend.Match{m(0, 8)}},
		{[]blend.Match{m(5, 9), m(4, 8)}, []blend.Match{m(4, 8)}, []blend.Match{m(4, 8)}},
	} {
		require.Equal(t, c.greedy, blend.Greedy(c.all))
		require.Equal(t, c.optimal, blend.Optimal(c.all))
	}
}

// TestOptimalIsTheBestOfAll tries all covers.
func TestOptimalIsTheBestOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) blend.Match {
			start := rapid.IntRange(0, 20).Draw(t, "start")
			return blend.Match{Start: start, End: start + rapid.IntRange(1, 6).Draw(t, "length")}
		}), 0, 9).Draw(t, "matches")
		most, fewest := 0, 0
		for set := range 1 << len(all) {
			var some []blend.Match
			for i := range all {
				if set>>i&1 == 1 {
					some = append(some, all[i])
				}
			}
			if tokens := covered(some); tokens > most || tokens == most && len(some) < fewest {
				most, fewest = tokens, len(some)
			}
		}
		optimal, greedy := blend.Optimal(all), blend.Greedy(all)
		require.Equal(t, most, covered(optimal))
		require.Len(t, optimal, fewest)
		require.GreaterOrEqual(t, most, covered(greedy))
		left := 0
		for _, g := range blend.Gaps(optimal, 30) {
			left += g.End - g.Start
		}
		require.Equal(t, 30-most, left)
	})
}

// covered returns the tokens of matches, or -1 if they overlap.
func covered(some []blend.Match) int {
	taken, n := map[int]bool{}, 0
	for _, m := range some {
		for i := m.Start; i < m.End; i++ {
			if taken[i] {
				return -1
			}
			taken[i] = true
			n++
		}
	}
	return n
}
