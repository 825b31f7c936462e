package retrieval

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend/transformer"
)

func load(t *testing.T) *transformer.Model {
	t.Helper()
	at := filepath.Join("..", "..", "blend", "testdata", "retrieval")
	config, err := os.ReadFile(at + ".json")
	require.NoError(t, err)
	weights, err := os.ReadFile(at + ".safetensors")
	require.NoError(t, err)
	model, err := transformer.Load(config, weights)
	require.NoError(t, err)
	return model
}

// TestTrainedTask compares ways of computing prompts of a task that a model was trained on. bench/blend has more prompts,
// and draws the figures of docs/blend.md.
func TestTrainedTask(t *testing.T) {
	prompts := 40
	if testing.Short() {
		prompts = 10
	}
	ways := []Way{
		{Ratio: 0}, {Ratio: 1, Layer: 1}, {Ratio: 0.15, Layer: 2}, {Ratio: 0.15, Layer: 2, Random: true},
		{Ratio: 0.3, Layer: 2}, {Ratio: 0.3, Layer: 2, Random: true}, {Ratio: 0.15, Layer: 1}, {Ratio: 0.15, Layer: 1, Random: true},
	}
	out, err := Try(load(t), ways, prompts, 1)
	require.NoError(t, err)
	for i, o := range out {
		t.Logf("%+v: right %d of %d and %d of %d, divergence %.3f, KV error %.3f", ways[i], o.Named, o.AskedNamed, o.Pronoun, o.AskedPronoun, o.Divergence, o.KVError)
	}
	concatenation, whole := out[0], out[1]
	require.Equal(t, prompts, whole.AskedNamed+whole.AskedPronoun)
	require.GreaterOrEqual(t, whole.Named+whole.Pronoun, prompts*95/100, "the model answers")
	require.Zero(t, whole.Divergence)
	for layer := range whole.KVError {
		require.Zero(t, whole.KVError[layer])
	}
	require.Less(t, concatenation.Pronoun, whole.Pronoun/2, "documents alone do not have the subject")
	for i := 2; i < len(ways); i += 2 {
		selected, random := out[i], out[i+1]
		last := len(selected.KVError) - 1
		require.Less(t, selected.KVError[last], random.KVError[last], "%+v", ways[i])
		require.InDelta(t, random.Rows, selected.Rows, 0)
	}
}
