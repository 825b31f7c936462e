package encoder

import (
	"encoding/json"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

func TestIdentifier(t *testing.T) {
	require.Equal(t, "h", Identifier("", "h"))
	require.Equal(t, "12345:h", Identifier("12345", "h"))
}

func TestCheckIdentifier(t *testing.T) {
	for _, counter := range []string{
		"renderer0-mm-1-image-0", // 0.18.0 on
		"renderer12-mm-34567-video-10",
		"renderer-1-mm-1-audio-0", // a frontend without a number of its own
		"renderer-mm-7-image-0",   // 0.17
		"renderer:renderer0-mm-1-image-0", "renderer0-mm-1-:-0", "renderer0-mm-1-image-0-00",
		"renderer0-mm-1-made_up-0",
		"adapter:renderer0-mm-1-image-0", // with a LoRA in front
		"a:b:renderer0-mm-1-image-0",
		"0-image-0", // to 0.16: LLM.generate counts requests
		"chatcmpl-4f1d2b6c8a9e40d7b3a5c1e2f3d4b5a6-image-1",
		"cmpl-x-0-video-2",
		"my request\n-vision_chunk-0",
		"lora:7-audio-3",
		"-image-0",
	} {
		err := CheckIdentifier(counter)
		require.ErrorIs(t, err, ErrCounter, counter)
		require.ErrorContains(t, err, strconv.Quote(counter))
		require.ErrorContains(t, err, "mm_processor_cache_gb")
		require.ErrorContains(t, err, "prefix caching")
	}
	for _, content := range []string{
		"af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262", // blake3
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		strings.Repeat("0123456789abcdef", 8), // sha512
		"adapter:" + strings.Repeat("ab", 32),
		"6f1e7f0e-9e0b-4f6c-8d3a-0c1b2a3d4e5f", // a UUID
		"photo-image", "image-0", "photo-image-", "photo-image-x", "photo-image-007", "photo-picture-1", "photo-image-0 ", "renderer0-mm-1-image-x",
		"renderer0-mm-1-5", "renderer0-mm-1--5", "renderer0-mm--x-5", "renderer0-mm-x-y-5", "renderers0-mm-1-x-5", "xrenderer0-mm-1-x-5", "renderermm-1-x-5", "renderer--1-mm-1-x-5", "12345", "-5",
		"http://example.com/1.png", "日本語", "\xff", "-", "x",
		"photo-image-0\n", // the engine's own forms end in the number
	} {
		require.NoError(t, CheckIdentifier(content), "%q", content)
	}
	require.ErrorIs(t, CheckIdentifier(""), fs.ErrInvalid)
	long := CheckIdentifier(strings.Repeat("x", 100_000) + "-image-0")
	require.ErrorIs(t, long, ErrCounter)
	require.Less(t, len(long.Error()), 700)
	require.ErrorContains(t, long, "99808 bytes more")
}

// TestGoldenLMCacheKeys: the keys are those of LMCache, in testdata/lmcache_keys.json.
func TestGoldenLMCacheKeys(t *testing.T) {
	raw, err := os.ReadFile("testdata/lmcache_keys.json")
	require.NoError(t, err)
	var golden struct {
		Keys []struct {
			MMHash string `json:"mm_hash"`
			U64    string `json:"u64"`
			Hex    string `json:"hex"`
			Text   string `json:"key_text_bf16"`
		} `json:"ec_key"`
		DTypes  []struct{ Torch, Name string } `json:"dtype_names"`
		Refused []struct {
			DType string `json:"torch_dtype"`
		} `json:"unsupported_dtype"`
	}
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.Len(t, golden.Keys, 8)
	for _, k := range golden.Keys {
		require.Equal(t, k.U64, strconv.FormatUint(lmcacheHash(k.MMHash), 10), "%.40q", k.MMHash)
		text, err := LMCacheKey("Qwen/Qwen2-VL-2B-Instruct", "bfloat16", k.MMHash)
		require.NoError(t, err)
		require.Equal(t, k.Text, text)
		require.Contains(t, text, "@1@0@"+k.Hex+"@")
	}
	require.Len(t, golden.DTypes, 14)
	for _, d := range golden.DTypes {
		text, err := LMCacheKey("m", strings.TrimPrefix(d.Torch, "torch."), "x")
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(text, "@"+d.Name), text)
	}
	require.NotEmpty(t, golden.Refused)
	for _, d := range golden.Refused {
		_, err := LMCacheKey("m", strings.TrimPrefix(d.DType, "torch."), "x")
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, strings.TrimPrefix(d.DType, "torch."))
	}
	_, err = LMCacheKey("a@b", "bfloat16", "x")
	require.ErrorIs(t, err, fs.ErrInvalid)
	// A hash that begins with zeros: the text has none of them.
	for i := range 100_000 {
		if h := lmcacheHash(strconv.Itoa(i)); h>>52 == 0 {
			text, err := LMCacheKey("m", "bool", strconv.Itoa(i))
			require.NoError(t, err)
			require.Equal(t, "m@1@0@"+strconv.FormatUint(h, 16)+"@bool", text)
			require.NotContains(t, text, "@0"+strconv.FormatUint(h, 16))
			return
		}
	}
	require.Fail(t, "no hash began with three zeros")
}

func TestFingerprint(t *testing.T) {
	full := Fingerprint{Model: "Qwen/Qwen2-VL-2B-Instruct", Revision: "895c3a4", DType: "bfloat16", Layout: "2d 1536", Engine: "0.33.0"}
	space, err := full.Space()
	require.NoError(t, err)
	// It is part of files and keys that exist: what made this text must not change.
	require.Equal(t, "Qwen2-VL-2B-Instruct.bfloat16.0.33.0.54998c34ef5ba11bc332b0a8cf866294", space)
	require.NoError(t, tier.Key{Space: space, Name: "x"}.Validate())

	// Every field matters, and so does where one ends.
	spaces := map[string]Fingerprint{space: full}
	for _, other := range []func(*Fingerprint){
		func(f *Fingerprint) { f.Model = "x/Qwen2-VL-2B-Instruct" },
		func(f *Fingerprint) { f.Model += "/" },
		func(f *Fingerprint) { f.Revision = "895c3a5" },
		func(f *Fingerprint) { f.Revision = "" },
		func(f *Fingerprint) { f.DType = "float16" },
		func(f *Fingerprint) { f.Layout = "2d 1537" },
		func(f *Fingerprint) { f.Engine = "0.32.0" },
		func(f *Fingerprint) { f.Engine = "" },
		func(f *Fingerprint) { f.Revision, f.DType = "895c3a", "4bfloat16" },
		func(f *Fingerprint) { f.Revision, f.Layout = f.Layout, f.Revision },
		func(f *Fingerprint) { f.Ranks = 1 },
		func(f *Fingerprint) { f.Ranks = 2 },
		func(f *Fingerprint) { f.Ranks, f.Rank = 2, 1 },
	} {
		f := full
		other(&f)
		space, err := f.Space()
		require.NoError(t, err)
		require.NotContains(t, spaces, space, "%+v", f)
		spaces[space] = f
	}

	long := Fingerprint{Model: strings.Repeat("/é.-", 800), Revision: "r", DType: strings.Repeat("D", 4096), Engine: strings.Repeat("9", 4096), Ranks: 1 << 60, Rank: 1<<60 - 1}
	space, err = long.Space()
	require.NoError(t, err)
	require.Less(t, len(space), 255)

	for model, front := range map[string]string{"/models/.hidden/": "hidden.", "--": "x.", "/": "x.", "été": "t_.", "a/b c": "b_c."} {
		space, err := Fingerprint{Model: model, DType: "bool"}.Space()
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(space, front+"bool."), space)
		require.Len(t, space, len(front)+len("bool.")+32)
	}

	for text, wrong := range map[string]Fingerprint{
		"needs a model": {DType: "bool"},
		"needs a dtype": {Model: "m"},
		"rank 2 of 2":   {Model: "m", DType: "bool", Ranks: 2, Rank: 2},
		"rank 1 of 0":   {Model: "m", DType: "bool", Rank: 1},
		"rank -1 of 2":  {Model: "m", DType: "bool", Ranks: 2, Rank: -1},
		"rank 0 of -1":  {Model: "m", DType: "bool", Ranks: -1},
		"the layout of": {Model: "m", DType: "bool", Layout: strings.Repeat("x", 4097)},
	} {
		_, err := wrong.Space()
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
}
