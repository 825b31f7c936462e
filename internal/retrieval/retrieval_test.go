package retrieval

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend/transformer"
	"github.com/ringcache/ringcache/internal/invariants"
)

func load(t *testing.T, name string) *transformer.Model {
	t.Helper()
	at := filepath.Join("..", "..", "blend", "testdata", "retrieval-"+name)
	config, err := os.ReadFile(at + ".json")
	require.NoError(t, err)
	weights, err := os.ReadFile(at + ".safetensors")
	require.NoError(t, err)
	model, err := transformer.Load(config, weights)
	require.NoError(t, err)
	return model
}

// TestTrainedTask compares ways of computing prompts of a task that two models were trained on. bench/blend
// has more prompts, and draws the figures of docs/blend.md. KV is nearer to that of a whole prefill where
// tokens were selected than where they were drawn, with both models. Answers are only where the check can see
// what matters.
//
// See docs/decisions.md, "A trained task is shown with what it refutes".
func TestTrainedTask(t *testing.T) {
	prompts := 40
	if testing.Short() || invariants.Enabled { // with the race detector
		prompts = 10
	}
	for _, name := range []string{"early", "late"} {
		t.Run(name, func(t *testing.T) {
			ways := []Way{{Ratio: 0}, {Ratio: 1, Layer: 1}}
			for _, ratio := range []float64{0.05, 0.15, 0.3, 0.5} {
				ways = append(ways, Way{Ratio: ratio, Layer: 1}, Way{Ratio: ratio, Layer: 1, Random: true})
			}
			out, err := Try(load(t, name), ways, prompts, 1)
			require.NoError(t, err)
			for i, o := range out {
				t.Logf("%+v: right %d of %d and %d of %d, divergence %.3f, KV error %.3f",
					ways[i], o.Named, o.AskedNamed, o.Pronoun, o.AskedPronoun, o.Divergence, o.KVError)
			}
			concatenation, whole, selected, random := out[0], out[1], out[8], out[9]
			require.Equal(t, prompts, whole.AskedNamed+whole.AskedPronoun)
			require.GreaterOrEqual(t, whole.Named+whole.Pronoun, prompts*95/100, "the model answers")
			require.Zero(t, whole.Divergence)
			for layer := range whole.KVError {
				require.Zero(t, whole.KVError[layer])
			}
			require.Equal(t, concatenation.AskedNamed, concatenation.Named, "documents alone have these answers")
			require.Less(t, concatenation.Pronoun, whole.Pronoun/2, "and not those")
			for i := 2; i < len(ways); i += 2 {
				for layer := 1; layer < len(whole.KVError); layer++ {
					require.Less(t, out[i].KVError[layer], out[i+1].KVError[layer], "%+v layer %d", ways[i], layer)
				}
				require.InDelta(t, out[i+1].Rows, out[i].Rows, 1e-9)
			}
			if name == "early" {
				require.Greater(t, selected.Pronoun, random.Pronoun)
				require.GreaterOrEqual(t, selected.Pronoun, whole.Pronoun*9/10)
			} else {
				require.Less(t, selected.Pronoun, whole.Pronoun/2, "the check can't see what later layers will need")
			}
		})
	}
}
