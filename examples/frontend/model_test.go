package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/preprocess"
)

// modelDirs are the settings of two small models.
var modelDirs = map[string]map[string]string{
	"llava": {
		"config.json": `{"model_type": "llava", "image_token_index": 4, "text_config": {"vocab_size": 256},
			"vision_config": {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}}`,
		"preprocessor_config.json": `{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}`,
	},
	"qwen2vl": {
		"config.json": `{"model_type": "qwen2_vl", "image_token_id": 4, "vision_start_token_id": 5, "vision_end_token_id": 6, "text_config": {"vocab_size": 256}}`,
		"preprocessor_config.json": `{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
			"min_pixels": 3136, "max_pixels": 12544}`,
	},
}

func modelDir(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range modelDirs[name] {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	return dir
}

func TestExpand(t *testing.T) {
	v, err := openModel(modelDir(t, "qwen2vl"), preprocess.Options{})
	require.NoError(t, err)
	require.Equal(t, []uint32{5, 4, 6}, v.prompt)
	require.Equal(t, 256, v.model.VocabSize)
	got, at, err := v.expand([]uint32{1, 4, 9, 4}, []int{2, 3})
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 4, 4, 9, 4, 4, 4}, got)
	require.Equal(t, []engine.Placeholder{{Offset: 1, Length: 2}, {Offset: 4, Length: 3}}, at)
	_, _, err = v.expand([]uint32{1, 4, 4}, []int{2})
	require.Error(t, err)
	_, _, err = v.expand([]uint32{1}, []int{2})
	require.Error(t, err)
}

func TestOpenModelErrors(t *testing.T) {
	for name, config := range map[string]string{
		"no image token": `{"model_type": "llava", "text_config": {"vocab_size": 256}, "vision_config": {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}}`,
		"no vocabulary":  `{"model_type": "llava", "image_token_index": 4, "vision_config": {"model_type": "clip_vision_model", "image_size": 56, "patch_size": 14}}`,
		"no json":        `{`,
	} {
		dir := modelDir(t, "llava")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
		_, err := openModel(dir, preprocess.Options{})
		require.Error(t, err, name)
	}
}
