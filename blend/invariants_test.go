package blend_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/internal/invariants"
)

// TestChunkAloneIsTheMovedChunk: a chunk that is computed alone at an offset is the one computed at 0, moved
// there: keys and values of all layers. It holds for every scaling of positions.
func TestChunkAloneIsTheMovedChunk(t *testing.T) {
	scalings := map[string]map[string]any{
		"none":   nil,
		"linear": {"rope_type": "linear", "factor": 2.0},
		"yarn":   {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
		"llama3": {
			"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 1024,
		},
		"ntk": {"rope_type": "dynamic", "factor": 1.0, "alpha": 50.0},
	}
	for name, scaling := range scalings {
		model := randomModel(t, 1, func(c map[string]any) { c["num_hidden_layers"], c["rope_scaling"] = 3, scaling })
		tokens := randomTokens(rand.New(rand.NewPCG(1, 1)), 40, 512)
		for _, offset := range []int{1, 100, 3000} {
			at := alone(t, model, tokens, offset, rope.F32)
			zero := alone(t, model, tokens, 0, rope.F32)
			moved, err := blend.New(model.Shape(rope.F32), offset+len(tokens))
			require.NoError(t, err)
			move, err := blend.NewMove(model.Table(), moved, offset, zero)
			require.NoError(t, err)
			require.NoError(t, blend.MoveAll([]*blend.Move{move}, 0))
			var keys, values float64
			for layer := range moved.Layers {
				from := offset * moved.Row()
				keys = max(keys, difference(
					floats(moved.Keys(layer)[from:], rope.F32), floats(at.Keys(layer), rope.F32)))
				values = max(values, difference(
					floats(moved.Values(layer)[from:], rope.F32), floats(at.Values(layer), rope.F32)))
				require.Equal(t, zero.Values(layer), moved.Values(layer)[from:], "values are not changed")
			}
			require.Less(t, max(keys, values), 2e-5, "%s at %d", name, offset)
			t.Logf("%-6s at %4d: keys within %.1e, values within %.1e", name, offset, keys, values)
		}
	}
}

// TestUnrotatedChunk: keys that were stored without a position get theirs.
func TestUnrotatedChunk(t *testing.T) {
	model := randomModel(t, 2, func(c map[string]any) { c["num_hidden_layers"] = 2 })
	shape := model.Shape(rope.F32)
	plain, err := blend.New(shape, 5)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(2, 2))
	for i := range plain.Bytes {
		plain.Bytes[i] = byte(r.Uint32N(64)) // any small floats
	}
	rotated := clone(plain)
	for layer := range shape.Layers {
		for i := range 5 {
			row := rotated.Keys(layer)[i*shape.Row() : (i+1)*shape.Row()]
			require.NoError(t, model.Table().At(7+i).Apply(row, row, rope.F32))
		}
	}
	got := map[bool]blend.KV{}
	for unrotated, chunk := range map[bool]blend.Chunk{
		true: {KV: plain, Unrotated: true}, false: {KV: rotated, Position: 7},
	} {
		kv, err := blend.New(shape, 40)
		require.NoError(t, err)
		move, err := blend.NewMove(model.Table(), kv, 30, chunk)
		require.NoError(t, err)
		require.NoError(t, blend.MoveAll([]*blend.Move{move}, 1))
		require.Equal(t, make([]byte, 30*shape.Row()), kv.Keys(1)[:30*shape.Row()], "nothing else is written")
		require.Equal(t, make([]byte, 5*shape.Row()), kv.Values(1)[35*shape.Row():])
		got[unrotated] = kv
	}
	e := difference(floats(got[true].Bytes, rope.F32), floats(got[false].Bytes, rope.F32))
	require.Less(t, e, 1e-6)
	t.Logf("unrotated and moved from 7 to 30 differ by %.1e", e)
}

// TestDeviationsThatAreZero: in layer 0 nothing has seen other tokens, and the first chunk has seen all that
// is in front.
func TestDeviationsThatAreZero(t *testing.T) {
	model := randomModel(t, 3, func(c map[string]any) { c["num_hidden_layers"] = 4 })
	p := documents(rand.New(rand.NewPCG(3, 3)), 512)
	moved := p.move(t, model, rope.F32)
	prefix := p.cover[0].End
	for _, measure := range []blend.Measure{blend.Keys, blend.Values} {
		for layer := range model.Dims().Layers {
			kv := clone(moved)
			result := p.blend(t, model, kv, measure, blend.PlanOptions{Checks: []blend.Check{{Layer: layer}}})
			first, others := 0.0, 0.0
			for row, d := range result.Deviations[:len(p.tokens)-p.suffix] {
				if row < prefix {
					first = max(first, d)
				} else {
					others = max(others, d)
				}
			}
			require.Zero(t, first, "the first chunk, in layer %d", layer)
			if layer == 0 {
				require.Less(t, others, 1e-9)
			} else {
				require.Greater(t, others, 0.1, "layer %d", layer)
			}
			t.Logf("measure %d layer %d: first chunk %.1e, others up to %.1e", measure, layer, first, others)
		}
	}
}

// TestRatioOneIsAWholePrefill, bit for bit, with logits, at any check layer, and with a prefix that is not
// computed.
func TestRatioOneIsAWholePrefill(t *testing.T) {
	for _, d := range []rope.DType{rope.F32, rope.F16, rope.BF16} {
		model := randomModel(t, 4, func(c map[string]any) { c["num_hidden_layers"] = 4 })
		p := documents(rand.New(rand.NewPCG(4, 4)), 512)
		moved := p.move(t, model, d)
		full, want := p.full(t, model, d)
		require.NotEqual(t, full.Bytes, moved.Bytes)
		checks := []int{1}
		if d == rope.F32 {
			checks = []int{0, 1, 2}
		}
		for _, layer := range checks {
			for _, prefix := range []int{0, blend.Exact(p.cover)} {
				kv := clone(moved)
				got := p.blend(t, model, kv, blend.Keys, blend.PlanOptions{
					Prefix: prefix, Checks: []blend.Check{{Layer: layer, Selection: blend.Selection{Ratio: 1}}},
				})
				require.Equal(t, full.Bytes, kv.Bytes, "%s check layer %d prefix %d", d, layer, prefix)
				require.Equal(t, want.Logits[prefix:], got.Logits)
				require.Len(t, got.Rows, len(p.tokens)-prefix)
			}
		}
	}
	t.Log("difference of KV and logits: 0 bits")
}

// TestUnchangedKVStays: if what is reused is what a whole prefill computes, any selection gives it again, bit
// for bit.
func TestUnchangedKVStays(t *testing.T) {
	model := randomModel(t, 5, func(c map[string]any) { c["num_hidden_layers"] = 4 })
	p := documents(rand.New(rand.NewPCG(5, 5)), 512)
	full, want := p.full(t, model, rope.F32)
	for _, ratio := range []float64{0, 0.05, 0.3, 0.8} {
		for _, keepFresh := range []bool{false, true} {
			kv := clone(full)
			got := p.blend(t, model, kv, blend.Values, blend.PlanOptions{
				Checks: []blend.Check{{Layer: 1, Selection: blend.Selection{Ratio: ratio}}}, KeepFresh: keepFresh,
			})
			require.Equal(t, full.Bytes, kv.Bytes, "ratio %v", ratio)
			for i, row := range got.Rows {
				require.Equal(t, want.Logits[row], got.Logits[i])
			}
			for _, d := range got.Deviations {
				require.Zero(t, d)
			}
		}
	}
	t.Log("difference of KV and logits: 0 bits, deviations 0")
}

// TestSelectionBeatsRandom is the experiment of docs/blend.md: random weights, 8 seeds, equal numbers of
// tokens.
func TestSelectionBeatsRandom(t *testing.T) {
	seeds, ratios := uint64(8), []float64{0.15, 0.25, 0.5, 0.75}
	if testing.Short() {
		seeds = 1
	}
	if invariants.Enabled {
		seeds, ratios = 1, []float64{0.5, 0.75} // the query alone is a quarter of a short prompt
	}
	type way struct {
		name      string
		measure   blend.Measure
		random    bool
		keepFresh bool
	}
	ways := []way{
		{"keys", blend.Keys, false, false}, {"values", blend.Values, false, false}, {"random", blend.Keys, true, false},
		{"keys, all fresh rows kept", blend.Keys, false, true}, {"random, all fresh rows kept", blend.Keys, true, true},
	}
	sum := map[string]float64{}
	for seed := range seeds {
		model := randomModel(t, 100+seed, nil)
		r := rand.New(rand.NewPCG(seed, 7))
		p := documents(r, 512)
		moved := p.move(t, model, rope.F32)
		full, _ := p.full(t, model, rope.F32)
		want := floats(full.Bytes, rope.F32)
		sum["concatenation"] += difference(floats(moved.Bytes, rope.F32), want) / float64(seeds)
		for _, ratio := range ratios {
			errors := map[string]float64{}
			for _, w := range ways {
				kv := clone(moved)
				check := blend.Check{Layer: 1, Selection: blend.Selection{Ratio: ratio}}
				o := blend.PlanOptions{Checks: []blend.Check{check}, KeepFresh: w.keepFresh}
				if w.random {
					p.random(t, model, kv, o, r)
				} else {
					p.blend(t, model, kv, w.measure, o)
				}
				errors[w.name] = difference(floats(kv.Bytes, rope.F32), want)
				sum[fmt.Sprint(w.name, ratio)] += errors[w.name] / float64(seeds)
			}
			require.Less(t, errors["keys"], errors["random"], "seed %d ratio %v", seed, ratio)
			require.Less(t, errors["values"], errors["random"], "seed %d ratio %v", seed, ratio)
			require.Less(t, errors["keys, all fresh rows kept"], errors["random, all fresh rows kept"],
				"seed %d ratio %v", seed, ratio)
			require.Less(t, errors["keys, all fresh rows kept"], errors["keys"],
				"seed %d ratio %v: keeping is free", seed, ratio)
		}
	}
	t.Logf("mean relative error of KV over %d seeds; plain concatenation %.3f", seeds, sum["concatenation"])
	for _, w := range ways {
		line := fmt.Sprintf("%-28s", w.name)
		for _, ratio := range ratios {
			line += fmt.Sprintf("  %.2f: %.3f", ratio, sum[fmt.Sprint(w.name, ratio)])
		}
		t.Log(line)
	}
}
