package kv

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/torchdtype"
)

// goldenChain is a chain of which the last hashes are known.
type goldenChain struct {
	Algorithm      Algorithm
	Chunk, N, End  int
	Unfull, Legacy bool
	Tokens, None   string
	Seed           *string
	Hashes         []string
}

// golden is what testdata/lmcache_golden.py wrote.
type golden struct {
	Sequences                  map[string][]int64
	Multiprocess, Legacy, Seed []goldenChain
	Range                      []struct {
		Start  int
		End    *int
		Hashes []string
	}
	Prefix []struct {
		Prefix string
		Hashes []string
	}
	CBOR []struct {
		Legacy         bool
		Previous, CBOR string
		Tokens         []int64
	}
	Placeholder []struct {
		Identifier string
		Values     []uint32
	}
	EngineKey []struct {
		Note, Model, DType, Hash, Text, Reparsed string
		World, Worker                            int
		Layer                                    *int
		Tags                                     [][2]string
	} `json:"engine_key"`
	Parse     []struct{ Input, Text, Error string }
	ObjectKey []struct {
		Note, Hash, Model, Salt, Error, Text, File string
		Rank, Group                                int64
		FileBack                                   bool `json:"file_back"`
	} `json:"object_key"`
	File []struct{ Input, File, Text string }
	Rank []struct {
		Args [4]int
		Hex  string
	}
	EncoderKey []struct{ Text string } `json:"encoder_key"`
	DType      []struct {
		Torch, Name string
		Size        int
	}
	Packed []struct {
		Tokens, Packed string
		Refused        []int64
		RefusedPacked  string `json:"refused_packed"`
	}
	ServerKey []struct {
		Note, Model, Salt, Error  string
		World, Tokens, Start, End int
		Worker                    *int
		Groups                    []uint32
		Texts                     [][]string
	} `json:"server_key"`
}

// goldens returns the vectors of both releases.
func goldens(t *testing.T) map[string]golden {
	t.Helper()
	out := map[string]golden{}
	for _, release := range []string{"0.5.6", "0.5.7rc2"} {
		raw, err := os.ReadFile("testdata/lmcache-" + release + ".json")
		require.NoError(t, err)
		var g golden
		require.NoError(t, json.Unmarshal(raw, &g))
		out[release] = g
	}
	return out
}

// eachGolden runs a test for both releases, and logs what it checked and what it left out.
func eachGolden(t *testing.T, run func(t *testing.T, g golden, c *counts)) {
	for release, g := range goldens(t) {
		t.Run(release, func(t *testing.T) {
			var c counts
			run(t, g, &c)
			t.Logf("lmcache %s: %d vectors checked, of which %d are refused here; left out: %d", release, c.checked, len(c.refused), len(c.left))
			for _, l := range slices.Concat(c.refused, c.left) {
				t.Log("  ", l)
			}
			require.Positive(t, c.checked)
		})
	}
}

type counts struct {
	checked       int
	refused, left []string
}

func (c *counts) refuse(format string, args ...any) {
	c.checked++
	c.refused = append(c.refused, "refused: "+fmt.Sprintf(format, args...))
}

func newHasher(t testing.TB, s Scheme) *Hasher {
	t.Helper()
	h, err := NewHasher(s)
	require.NoError(t, err)
	return h
}

func packed(t testing.TB, tokens []int64) []byte {
	t.Helper()
	b, err := AppendTokens(nil, tokens)
	require.NoError(t, err)
	return b
}

// texts returns the hashes of a chain as keys have them.
func (c *Chain) texts() []string {
	out := make([]string, c.Len())
	for i := range out {
		out[i] = c.hasher.Text(c.Hash(i))
	}
	return out
}

func (g goldenChain) check(t *testing.T, s Scheme, tokens []int64) {
	t.Helper()
	h := newHasher(t, s)
	require.Equal(t, g.None, h.Text(h.root))
	chain := h.NewChain()
	require.NoError(t, chain.Set(packed(t, tokens)))
	all := chain.texts()
	require.Len(t, all, g.N, "%+v", s)
	require.Equal(t, g.Hashes, all[len(all)-len(g.Hashes):], "%+v of %s", s, g.Tokens)
	require.LessOrEqual(t, min(2, g.N), len(g.Hashes))

	numbers := h.NewChain()
	require.NoError(t, numbers.SetTokens(tokens))
	require.Equal(t, all, numbers.texts(), "numbers as in 0.5.6 and bytes as in 0.5.7 make the same hashes")
}

func TestGoldenChains(t *testing.T) {
	eachGolden(t, func(t *testing.T, g golden, c *counts) {
		for _, row := range g.Multiprocess {
			s := Scheme{Algorithm: row.Algorithm, ChunkTokens: row.Chunk}
			if row.Algorithm != BLAKE3 {
				s.Seed = "0"
			}
			row.check(t, s, g.Sequences[row.Tokens])
			c.checked++
		}
		for _, row := range g.Legacy {
			row.check(t, Scheme{Algorithm: row.Algorithm, ChunkTokens: row.Chunk, Seed: "0", Legacy: true, KeepTail: row.Unfull}, g.Sequences[row.Tokens])
			c.checked++
		}
		for _, row := range g.Seed {
			s := Scheme{Algorithm: row.Algorithm, ChunkTokens: 4, Legacy: row.Legacy}
			if row.Seed != nil {
				s.Seed = *row.Seed
			}
			row.N = 3
			row.check(t, s, g.Sequences["0..11"])
			c.checked++
		}
	})
}

func TestGoldenRanges(t *testing.T) {
	eachGolden(t, func(t *testing.T, g golden, c *counts) {
		chain := newHasher(t, Scheme{ChunkTokens: 4}).NewChain()
		require.NoError(t, chain.SetTokens(g.Sequences["0..15"]))
		for _, row := range g.Range {
			end := 1 << 30
			if row.End != nil {
				end = *row.End
			}
			if row.Start%4 != 0 {
				// Only LMCache's hasher rounds start up. Its look-ups, and so Range, round it down.
				c.left = append(c.left, fmt.Sprintf("left out: start %d is not aligned; a look-up of LMCache rounds it down, its hasher up", row.Start))
				continue
			}
			first, last := chain.Range(row.Start, end)
			require.Equal(t, row.Hashes, append([]string{}, chain.texts()[first:last]...), "%+v", row)
			c.checked++
		}
	})
}

func TestGoldenSteps(t *testing.T) {
	g := goldens(t)["0.5.6"]
	h := newHasher(t, Scheme{ChunkTokens: 4})
	s := newScratch(h.scheme)
	tokens := packed(t, []int64{0, 1, 2, 3, 4, 5, 6, 7})
	for _, row := range g.Prefix {
		previous, err := hex.DecodeString(row.Prefix)
		require.NoError(t, err)
		for i, want := range row.Hashes {
			previous, err = h.step(s, nil, previous, tokens[16*i:16*i+16], nil)
			require.NoError(t, err)
			require.Equal(t, want, hex.EncodeToString(previous), "behind %q", row.Prefix)
		}
	}
	for _, row := range g.CBOR {
		h := newHasher(t, Scheme{Algorithm: SHA256CBOR, Legacy: row.Legacy})
		previous, err := hex.DecodeString(row.Previous)
		require.NoError(t, err)
		require.NoError(t, h.encode(s, previous, packed(t, row.Tokens), nil))
		require.Equal(t, row.CBOR, hex.EncodeToString(s.cbor.Bytes()))
	}
	t.Logf("lmcache 0.5.6: %d chains behind other hashes and %d CBOR texts checked; left out: none", len(g.Prefix), len(g.CBOR))
	require.NotEmpty(t, g.Prefix)
	require.NotEmpty(t, g.CBOR)
}

func TestGoldenTokens(t *testing.T) {
	all := goldens(t)
	for _, row := range all["0.5.6"].Placeholder {
		b := AppendPlaceholders([]byte{9}, row.Identifier, len(row.Values))
		require.Len(t, b, 1+4*len(row.Values))
		for i, v := range row.Values {
			require.Equal(t, v, binary.BigEndian.Uint32(b[1+4*i:]), "%q, %d", row.Identifier, i)
		}
	}
	g := all["0.5.7rc2"]
	chain := newHasher(t, Scheme{ChunkTokens: 1}).NewChain()
	for _, row := range g.Packed {
		switch {
		case row.Refused != nil:
			_, err := AppendTokens(nil, row.Refused)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, "32 bits")
		case row.RefusedPacked != "":
			b, err := hex.DecodeString(row.RefusedPacked)
			require.NoError(t, err)
			require.ErrorIs(t, chain.Set(b), fs.ErrInvalid)
		default:
			require.Equal(t, row.Packed, hex.EncodeToString(packed(t, g.Sequences[row.Tokens])), row.Tokens)
		}
	}
	t.Logf("%d placeholders of 0.5.6 and %d packings of 0.5.7rc2 checked; left out: none", len(all["0.5.6"].Placeholder), len(g.Packed))
	require.NotEmpty(t, all["0.5.6"].Placeholder)
	require.NotEmpty(t, g.Packed)
}

func TestGoldenEngineKeys(t *testing.T) {
	g := goldens(t)["0.5.6"]
	var c counts
	for _, row := range g.EngineKey {
		k := EngineKey{Model: row.Model, World: row.World, Worker: row.Worker, Hash: row.Hash, DType: row.DType}
		if row.Layer != nil {
			k.Layered, k.Layer = true, *row.Layer
		}
		for _, tag := range row.Tags {
			k.Tags = append(k.Tags, Tag{tag[0], tag[1]})
		}
		text, err := k.AppendText(nil)
		if err != nil {
			require.ErrorIs(t, err, fs.ErrInvalid)
			// Refused is what LMCache itself reads as another key or not at all, and what no engine has.
			if row.Reparsed == row.Text {
				require.True(t, row.Model == "" || row.World < 1 || row.Worker < 0 || strings.Contains(row.Tags[0][0], "%"), "%+v: %v", row, err)
			}
			c.refuse("%s: %v", row.Note, err)
			continue
		}
		require.Equal(t, row.Text, string(text))
		back, err := ParseEngineKey(row.Text)
		require.NoError(t, err)
		require.Equal(t, k, back)
		c.checked++
	}
	for _, row := range g.Parse {
		k, err := ParseEngineKey(row.Input)
		if row.Error == "" && row.Text == row.Input {
			require.NoError(t, err)
			text, err := k.AppendText(nil)
			require.NoError(t, err)
			require.Equal(t, row.Text, string(text))
		} else {
			require.ErrorIs(t, err, fs.ErrInvalid, "what LMCache refuses, and what it would write otherwise")
		}
		c.checked++
	}
	for _, row := range g.EncoderKey {
		k, err := ParseEngineKey(row.Text)
		require.NoError(t, err)
		require.Equal(t, "bfloat16", k.DType)
		c.checked++
	}
	for _, row := range g.DType {
		require.Equal(t, &torchdtype.DType{Name: row.Torch, LMCache: row.Name, Size: row.Size}, torchdtype.Find(row.Torch))
		c.checked++
	}
	t.Logf("lmcache 0.5.6: %d vectors checked, of which %d are refused here; left out: none", c.checked, len(c.refused))
	for _, r := range c.refused {
		t.Log("  ", r)
	}
	require.Greater(t, c.checked, 150)
}

func TestGoldenObjectKeys(t *testing.T) {
	eachGolden(t, func(t *testing.T, g golden, c *counts) {
		for _, row := range g.ObjectKey {
			hash, err := hex.DecodeString(row.Hash)
			require.NoError(t, err)
			if int64(Rank(row.Rank)) != row.Rank || int64(uint32(row.Group)) != row.Group {
				c.left = append(c.left, fmt.Sprintf("left out: rank %x or group %x have no place in 32 bits", row.Rank, row.Group))
				continue
			}
			k := ObjectKey{Hash: hash, Model: row.Model, Rank: Rank(row.Rank), Group: uint32(row.Group), Salt: row.Salt}
			text, err := k.AppendText(nil)
			if row.Error != "" {
				require.ErrorIs(t, err, fs.ErrInvalid, row.Error)
				c.checked++
				continue
			}
			if err != nil {
				require.True(t, row.Model == "" || len(hash) == 0 || len(hash) > 64, "%v", err)
				c.refuse("%v", err)
				continue
			}
			require.Equal(t, row.Text, string(text))
			back, err := ParseObjectKey(row.Text)
			require.NoError(t, err)
			require.Equal(t, k, back)
			name, err := k.FileName()
			if err != nil {
				require.True(t, !row.FileBack || len(row.File) > 255, "%v", err)
				c.refuse("%v", err)
				continue
			}
			require.Equal(t, row.File, name)
			back, err = ParseFileName(row.File)
			require.NoError(t, err)
			require.Equal(t, k, back)
			c.checked++
		}
		for _, row := range g.File {
			k, err := ParseFileName(row.Input)
			if row.File == row.Input && row.File != "" && !strings.HasPrefix(row.File, "@") && !strings.Contains(row.File, "@.data") {
				require.NoError(t, err)
				text, err := k.AppendText(nil)
				require.NoError(t, err)
				require.Equal(t, row.Text, string(text))
			} else {
				require.ErrorIs(t, err, fs.ErrInvalid, "what LMCache refuses, and what it would write otherwise")
			}
			c.checked++
		}
		for _, row := range g.Rank {
			rank, err := NewRank(row.Args[0], row.Args[1], row.Args[2], row.Args[3])
			if row.Args[0] > maxWorld || row.Args[1] >= row.Args[0] {
				require.ErrorIs(t, err, fs.ErrInvalid)
				c.refuse("%v", err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, row.Hex, fmt.Sprintf("%08x", uint32(rank)))
			c.checked++
		}
	})
}

// TestGoldenServerKeys: from the key in a message to the keys of objects, as the server of 0.5.7 has them.
func TestGoldenServerKeys(t *testing.T) {
	g := goldens(t)["0.5.7rc2"]
	h := newHasher(t, Scheme{ChunkTokens: 4})
	for _, row := range g.ServerKey {
		tokens := make([]int64, row.Tokens)
		for i := range tokens {
			tokens[i] = int64(i)
		}
		chain := h.NewChain()
		require.NoError(t, chain.SetTokens(tokens))
		workers := make([]int, 0, row.World)
		for w := range row.World {
			if row.Worker == nil || *row.Worker == w {
				workers = append(workers, w)
			}
		}
		got := make([][]string, len(row.Groups))
		var failed error
		for i, group := range row.Groups {
			got[i] = []string{}
			first, last := chain.Range(row.Start, row.End)
			for n := first; n < last; n++ {
				for _, w := range workers {
					rank, err := NewRank(row.World, w, row.World, w)
					require.NoError(t, err)
					text, err := ObjectKey{Hash: chain.Hash(n), Model: row.Model, Rank: rank, Group: group, Salt: row.Salt}.AppendText(nil)
					if err != nil {
						failed = err
					}
					got[i] = append(got[i], string(text))
				}
			}
		}
		if row.Error != "" {
			require.ErrorIs(t, failed, fs.ErrInvalid, row.Error)
			continue
		}
		require.NoError(t, failed)
		require.Equal(t, row.Texts, got, row.Note)
	}
	t.Logf("lmcache 0.5.7rc2: %d keys checked; left out: none", len(g.ServerKey))
	require.Greater(t, len(g.ServerKey), 15)
}

// TestGoldenVLLMBlocks: blocks of seven releases of vLLM, with every kind of extra keys.
func TestGoldenVLLMBlocks(t *testing.T) {
	raw, err := os.ReadFile("testdata/vllm_blocks.json")
	require.NoError(t, err)
	var rows []struct {
		Release, Seed, Request, None string
		Algorithm                    Algorithm
		Blocks                       []struct {
			Extra []any
			Hash  string
		}
	}
	require.NoError(t, json.Unmarshal(raw, &rows))
	releases := map[string]int{}
	for _, row := range rows {
		h := newHasher(t, Scheme{Algorithm: row.Algorithm, ChunkTokens: 4, Seed: row.Seed})
		require.Equal(t, row.None, hex.EncodeToString(h.root), row.Release)
		chain := h.NewChain()
		for i, b := range row.Blocks {
			tokens := packed(t, []int64{int64(4 * i), int64(4*i + 1), int64(4*i + 2), int64(4*i + 3)})
			require.NoError(t, chain.AppendBlock(tokens, fromJSON(t, b.Extra)...))
			require.Equal(t, b.Hash, hex.EncodeToString(chain.Hash(i)), "%s, %s, block %d", row.Release, row.Request, i)
		}
		releases[row.Release]++
	}
	t.Logf("vLLM: %d chains checked, by release: %v; left out: none", len(rows), releases)
	require.Len(t, releases, 7)
}

// fromJSON turns extra keys as vllm_blocks.py writes them into those of AppendBlock.
func fromJSON(t *testing.T, keys []any) []any {
	t.Helper()
	var out []any
	for _, k := range keys {
		switch k := k.(type) {
		case float64:
			out = append(out, int(k))
		case map[string]any:
			b, err := hex.DecodeString(k["bytes"].(string))
			require.NoError(t, err)
			out = append(out, b)
		case []any:
			out = append(out, fromJSON(t, k))
		default:
			out = append(out, k)
		}
	}
	return out
}
