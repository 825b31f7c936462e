//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/chunks"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// TestBlend explains a prompt with two known chunks, the first of which begins it, and gaps.
func TestBlend(t *testing.T) {
	folder := t.TempDir()
	m, err := memory.Open(memory.Options{Name: "blend", Dir: t.TempDir(), Size: 1 << 20})
	require.NoError(t, err)
	d, err := disk.Open(folder, disk.Options{})
	require.NoError(t, err)
	store, err := tier.Open(t.Context(), tier.Options{Memory: m, Lower: []tier.Lower{{Level: d, Write: tier.Through}}})
	require.NoError(t, err)
	shape := blend.Shape{Layers: 4, Heads: 2, HeadDim: 8, DType: rope.BF16}
	library, err := chunks.Open(t.Context(),
		chunks.Options{Store: store, Space: "kv.m", Shape: shape, Scheme: kv.Scheme{ChunkTokens: 4}})
	require.NoError(t, err)
	for _, tokens := range [][]int64{{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 9, 9, 9}} {
		bytes, err := blend.New(shape, 4)
		require.NoError(t, err)
		require.NoError(t, library.Put(t.Context(), tokens, blend.Chunk{KV: bytes}))
	}
	evil, err := chunks.Open(t.Context(),
		chunks.Options{Store: store, Space: "kv.\x1b[31mEVIL\n", Shape: shape, Scheme: kv.Scheme{ChunkTokens: 4}})
	require.NoError(t, err)
	bytes, err := blend.New(shape, 4)
	require.NoError(t, err)
	require.NoError(t, evil.Put(t.Context(), []int64{1, 1, 1, 1}, blend.Chunk{KV: bytes, Unrotated: true}))
	require.NoError(t, m.CheckStructure())
	require.NoError(t, store.Close())
	require.NoError(t, d.Close())
	require.NoError(t, m.Remove())

	prompt := []string{"1", "2", "3", "4", "0", "5", "6", "7", "8", "0", "0"}
	config := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"num_hidden_layers": 4, "hidden_size": 32,
		"num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 8, "intermediate_size": 64, "vocab_size": 100}`), 0o600))
	args := []string{"blend", "--query", "1", "--ratio", "0.4", "--model", config, folder}
	out, errOut, code := ringcache(t, append(args, prompt...)...)
	require.Zero(t, code, errOut)
	require.Regexp(t, `space kv.m: 3 chunks of 4 tokens, 4 layers of 2 heads of 8 bfloat16
FROM  TO  TOKENS  CHUNK             WAS AT
0     4   4       [0-9a-f]{16}  0
4     5   1       -                 
5     9   4       [0-9a-f]{16}  0
9     11  2       -                 
found 8 of 11 tokens in 2 chunks; 4 from the first on are exact
computed by layer: \[7 4 4 4\] tokens; 19 of 44 in all
moved: 2048 bytes, of which 512 are rotated
estimated work: .* operations, [0-9]+% of the prefill behind the exact tokens \(.*\), [0-9]+% of a whole one \(.*\)
`, out)

	require.Contains(t, out, "EVIL")
	require.NotContains(t, out, "\x1b", "no terminal obeys a space")

	out, errOut, code = ringcache(t, append([]string{"blend", "--json", folder}, prompt...)...)
	require.Zero(t, code, errOut)
	var all []chunks.Explanation
	require.NoError(t, json.Unmarshal([]byte(out), &all), out)
	require.Len(t, all, 2)
	require.Contains(t, out, `"dtype": "bfloat16"`, "names as in the JSON of other commands")
	require.Contains(t, out, `"head_dim": 8`)
	require.Equal(t, rope.BF16, all[1].Shape.DType)
	require.NotContains(t, out, "null", "a list without elements is a list")
	require.NotContains(t, out, "\x1b")
	require.Equal(t, []blend.Range{{Start: 4, End: 5}, {Start: 9, End: 11}}, all[1].Gaps)

	_, errOut, code = ringcache(t, append([]string{"blend", "--ratio", strconv.Itoa(2), folder}, prompt...)...)
	require.NotZero(t, code)
	require.Contains(t, errOut, "ratio")
	_, errOut, code = ringcache(t, append([]string{"blend", "--model", "/dev/zero", folder}, prompt...)...)
	require.NotZero(t, code)
	require.Contains(t, errOut, "more than")
	_, errOut, code = ringcache(t, append([]string{"blend", t.TempDir() + "?layout=native"}, prompt...)...)
	require.NotZero(t, code)
	require.Contains(t, errOut, "no chunks")
}
