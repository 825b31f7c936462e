package rope

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// vector is what vLLM and transformers computed: see testdata/tables.py.
type vector struct {
	Config       json.RawMessage
	NeoX         bool
	Positions    []int
	Key, Rotated []float32
	Frequencies  []float64
	Factor       float64
	MadeBy       string `json:"made_by"`
}

func TestTablesAreThoseOfVLLMAndTransformers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "tables.json"))
	require.NoError(t, err)
	var vectors []vector
	require.NoError(t, json.Unmarshal(text, &vectors))
	require.Len(t, vectors, 22)
	kinds := map[string]bool{}
	for _, v := range vectors {
		c, err := ParseConfig(v.Config)
		require.NoError(t, err)
		if !v.NeoX {
			c.Pairing = GPTJ
		}
		table, err := New(c)
		require.NoError(t, err)
		kinds[c.Scaling.Kind] = true
		worst := 0.0
		for i, f := range v.Frequencies {
			worst = max(worst, math.Abs(table.frequencies[i]/f-1))
		}
		require.Less(t, worst, 1e-5, v.MadeBy) // theirs are float32
		if v.Frequencies != nil {
			require.InDelta(t, v.Factor, table.factor, 1e-6)
		}
		moved := 0.0
		for i, p := range v.Positions {
			key, want := v.Key[i*c.HeadDim:(i+1)*c.HeadDim], v.Rotated[i*c.HeadDim:(i+1)*c.HeadDim]
			got := make([]float32, len(key))
			require.NoError(t, table.At(p).Floats(got, key))
			for j := range got {
				// Their angles are float32: at position 2047 they are wrong by up to 1e-4 radians.
				moved = max(moved, math.Abs(float64(got[j]-want[j])))
				require.InDelta(t, want[j], got[j], 2e-6+float64(p)*4*0x1p-24*2, "%s position %d element %d",
					v.MadeBy, p, j)
			}
		}
		frequencies := "not compared"
		if v.Frequencies != nil {
			frequencies = fmt.Sprintf("within %.1e", worst)
		}
		t.Logf("%-60s pairing %d: frequencies %s, keys within %.1e", v.MadeBy, c.Pairing, frequencies, moved)
	}
	require.Len(t, kinds, 6, "every kind of scaling was compared")
}

func TestWhatIsNoConfigurationIsRefused(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `{}`, `{"head_dim": 1}`, `{"head_dim": 5000}`, `{"head_dim": 5}`,
		`{"head_dim": 64, "rope_theta": -1}`,
		`{"head_dim": 64, "partial_rotary_factor": 2}`,
		`{"head_dim": 64, "rope_scaling": {"type": "longrope", "factor": 2}}`,
		`{"head_dim": 64, "rope_scaling": {"type": "linear"}}`,
		`{"head_dim": 64, "rope_scaling": {"type": "yarn", "factor": 2}}`,
		`{"head_dim": 64, "rope_scaling": {"type": "llama3", "factor": 2, "original_max_position_embeddings": 8}}`,
		`{"head_dim": 64, "rope_scaling": {"type": "default", "mrope_section": [1, 2]}}`,
		`{"head_dim": 64, "max_position_embeddings": 4,
			"rope_scaling": {"type": "dynamic", "factor": 2, "max_trained_positions": 8}}`,
		`{"head_dim": 2, "max_position_embeddings": 8, "rope_scaling": {"type": "dynamic", "factor": 2}}`,
	} {
		_, err := ParseConfig([]byte(text))
		require.ErrorIs(t, err, fs.ErrInvalid, text)
	}
	for _, c := range []Config{
		{HeadDim: 64, Pairing: 7},
		{HeadDim: 64, Scaling: Scaling{Kind: YaRN, Factor: 2, OriginalPositions: 8, BetaFast: 1, BetaSlow: 2}},
	} {
		_, err := New(c)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	_, err := New(Config{HeadDim: 64, Scaling: Scaling{Kind: "ntk-by-parts", Factor: 2}})
	require.ErrorIs(t, err, fs.ErrInvalid)
	var d DType
	require.ErrorIs(t, d.UnmarshalText([]byte("float8_e4m3fn")), fs.ErrInvalid)
}

// TestScalingOfVLLMNamedNTKIsRefused: it divides frequencies once more than the scaling that is NTK here.
func TestScalingOfVLLMNamedNTKIsRefused(t *testing.T) {
	_, err := ParseConfig([]byte(`{"head_dim": 64, "rope_scaling": {"rope_type": "ntk", "factor": 8}}`))
	require.ErrorIs(t, err, fs.ErrInvalid)
}

// TestNothingRotatedIsNotEverything: a factor that leaves no element was read as the default, all of them.
func TestNothingRotatedIsNotEverything(t *testing.T) {
	for _, text := range []string{
		`{"head_dim": 64, "partial_rotary_factor": 0.001}`, `{"head_dim": 64, "partial_rotary_factor": -0.001}`,
		`{"head_dim": 64, "partial_rotary_factor": 0}`,
		`{"head_dim": 64, "rope_parameters": {"partial_rotary_factor": 0.01}}`,
	} {
		_, err := ParseConfig([]byte(text))
		require.ErrorIs(t, err, fs.ErrInvalid, text)
	}
}

// TestNamesOfGPTNeoX: its configurations have other names for two fields, which vLLM reads, too.
func TestNamesOfGPTNeoX(t *testing.T) {
	c, err := ParseConfig([]byte(
		`{"hidden_size": 512, "num_attention_heads": 8, "rotary_pct": 0.25, "rotary_emb_base": 500}`))
	require.NoError(t, err)
	require.Equal(t, Config{HeadDim: 64, RotaryDim: 16, Theta: 500}, c)
}

// TestFieldsThatChangeRotationsAreRefused: what is not understood must not be read as if it was not there.
func TestFieldsThatChangeRotationsAreRefused(t *testing.T) {
	for _, text := range []string{
		// Rotations that differ from layer to layer.
		`{"head_dim": 64, "rope_parameters": {
			"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}`,
		`{"head_dim": 64, "rope_theta": 1e6, "rope_local_base_freq": 1e4}`,
		`{"head_dim": 64, "no_rope_layers": [1, 1, 1, 0]}`,
		// Other numbers of rotated elements, other positions, other frequencies.
		`{"head_dim": 64, "rotary_dim": 32}`,
		`{"head_dim": 64, "rope_parameters": {"rope_theta": 1e4, "rope_dim": 32}}`,
		`{"head_dim": 64, "qk_rope_head_dim": 32}`,
		`{"head_dim": 64, "mrope_section": [8, 12, 12]}`,
		`{"head_dim": 64, "rope_scaling": {"type": "default", "xdrope_section": [8, 12, 12]}}`,
		`{"head_dim": 64, "dual_chunk_attention_config": {"chunk_size": 8}}`,
		`{"head_dim": 64, "rope_parameters": {"rope_theta": 1e4, "use_fope": true}}`,
		`{"head_dim": 64, "alibi": true}`,
		// Two answers to one question.
		`{"head_dim": 64, "original_max_position_embeddings": 8,
			"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 16}}`,
	} {
		_, err := ParseConfig([]byte(text))
		require.ErrorIs(t, err, fs.ErrInvalid, text)
	}
	c, err := ParseConfig([]byte(`{"head_dim": 64, "alibi": false, "no_rope_layers": [], "mrope_section": null,
		"original_max_position_embeddings": 8,
		"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 8, "use_fope": false}}`))
	require.NoError(t, err, "fields that say no")
	require.Equal(t, 8, c.Scaling.OriginalPositions)
}

// TestFrequenciesOfTinyBetasAreNumbers: the numbers of the pairs between which YaRN blends were infinite.
func TestFrequenciesOfTinyBetasAreNumbers(t *testing.T) {
	table, err := New(Config{HeadDim: 64, Scaling: Scaling{
		Kind: YaRN, Factor: 2, OriginalPositions: 4096, BetaFast: 1e-320, BetaSlow: 1e-320,
	}})
	if err != nil {
		require.ErrorIs(t, err, fs.ErrInvalid)
		return
	}
	for _, f := range table.frequencies {
		require.False(t, math.IsNaN(f))
	}
}
