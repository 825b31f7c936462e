package preprocess

import (
	"encoding/binary"
	"image"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// modelDir copies a model, with one replacement.
func modelDir(t *testing.T, model, file, from, to string) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "models", model))))
	path := filepath.Join(dir, file)
	if from == "" {
		require.NoError(t, os.Remove(path))
		return dir
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(b), from)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(b), from, to, 1)), 0o600))
	return dir
}

func TestOpenErrors(t *testing.T) {
	const pre, conf = "preprocessor_config.json", "config.json"
	for _, c := range []struct{ model, file, from, to, text string }{
		{"llava-56", conf, "", "", "no such file"},
		{"llava-56", pre, "", "", "no such file"},
		{"llava-56", pre, `"shortest_edge": 56`, `"shortest_edge": "a"`, "not a map of numbers"},
		{"llava-56", pre, `"resample": 3`, `"resample": "three"`, "cannot unmarshal"},
		{"llava-56", conf, `"llava"`, `"mllama"`, `model_type "mllama" is not supported; supported are`},
		{"llava-56", conf, "clip_vision_model", "siglip_vision_model", "only clip_vision_model"},
		{"llava-56", conf, `"patch_size": 14`, `"patch_size": 16`, "not a multiple"},
		{"llava-56", conf, `_strategy": "default"`, `_strategy": "mean"`, "only default and full"},
		{"llava-56", pre, "CLIPImageProcessor", "SiglipImageProcessor", `"SiglipImageProcessor" of a llava model`},
		{"llava-56", pre, `"resample": 3`, `"resample": 2`, "only 3 (bicubic)"},
		{"llava-56", pre, `"do_resize"`, `"do_pad": true, "do_resize"`, "do_pad is not supported"},
		{"llava-56", pre, `"shortest_edge"`, `"longest_edge"`, "it must have shortest_edge, or height and width"},
		{"llava-56", pre, `"shortest_edge": 56`, `"shortest_edge": 0`, "1 to 65536"},
		{"llava-56", pre, `"height": 56`, `"height": 57`, "vision_config.image_size is 56"},
		{"llava-56", pre, `"do_center_crop": true`, `"do_center_crop": false`, "without do_center_crop"},
		{"llava-56", pre, `0.25,`, ``, "image_std 2"},
		{"llava-56", pre, `0.25,`, `0,`, "image_std has a 0"},
		{"llava-56", pre, `0.00392156862745098`, `0`, "rescale_factor is 0"},
		{"qwen2-vl", pre, "Qwen2VLImageProcessor", "CLIPImageProcessor", `"CLIPImageProcessor" of a qwen2_vl model`},
		{"qwen2-vl", pre, `"do_resize": true`, `"do_resize": false`, "do_resize off"},
		{"qwen2-vl", pre, `"merge_size": 2`, `"merge_size": 0`, "must be 1 to"},
		{"qwen2-vl", pre, `"merge_size": 2`, `"merge_size": 3`, "not what vision_config"},
		{"qwen2-vl", pre, `"min_pixels": 3136`, `"min_pixels": 0`, "shortest_edge is 0"},
		{"qwen2-vl", pre, `"patch_size": 14`, `"patch_size": 14, "size": {"height": 3}`, "must have shortest_edge and longest_edge"},
		{"qwen2.5-vl", "processor_config.json", `"longest_edge"`, `"max"`, "must have shortest_edge and longest_edge"},
	} {
		_, err := Open(modelDir(t, c.model, c.file, c.from, c.to), Options{})
		require.ErrorIs(t, err, ErrModel, c.text)
		require.ErrorContains(t, err, c.text)
	}
	_, err := Open(filepath.Join("testdata", "models", "llava-56"), Options{DType: "float64"})
	require.ErrorContains(t, err, "use float32, bfloat16 or float16")
}

// TestOpenDefaults leaves out what transformers has defaults for.
func TestOpenDefaults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("preprocessor_config.json", "{}")
	write("config.json", `{"model_type": "qwen2_vl"}`)
	p, err := Open(dir, Options{Normalize: true})
	require.NoError(t, err)
	q := p.(*qwenProcessor)
	require.Equal(t, []int{14, 2, 2, 3136, 1003520}, []int{q.patch, q.merge, q.frames, q.minPixels, q.maxPixels})
	require.EqualValues(t, "float32", q.values.dtype)

	write("config.json", `{"model_type": "llava", "vision_config": {"image_size": 224, "patch_size": 14}, "vision_feature_select_strategy": "full"}`)
	write("preprocessor_config.json", `{"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224}`)
	p, err = Open(dir, Options{})
	require.NoError(t, err)
	l, err := p.Layout(image.Pt(9, 9))
	require.NoError(t, err)
	require.Equal(t, 257, l.Tokens)
}

// TestFloats checks the roundings of the short floats.
func TestFloats(t *testing.T) {
	for x, want := range map[float32]uint16{
		0: 0, 1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00,
		1 + 1./2048: 0x3c00, 1 + 3./2048: 0x3c02, // ties
		1. / (1 << 14): 0x0400, 1. / (1 << 24): 1, 1. / (1 << 25): 0, 3. / (1 << 25): 2,
	} {
		b := encode(x, "float16")
		require.Equal(t, want, binary.LittleEndian.Uint16(b[:]), "%v", x)
	}
	for x, want := range map[float32]uint16{0: 0, 1: 0x3f80, -1.5: 0xbfc0, 1 + 1./256: 0x3f80, 1 + 3./256: 0x3f82, 1.005: 0x3f81} {
		b := encode(x, "bfloat16")
		require.Equal(t, want, binary.LittleEndian.Uint16(b[:]), "%v", x)
	}
}
