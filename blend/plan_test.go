package blend_test

import (
	"io/fs"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
)

func none(int) bool { return false }

func TestSelect(t *testing.T) {
	rows, nan, inf := []int{2, 3, 5, 8, 9}, math.NaN(), math.Inf(1)
	last := func(row int) bool { return row == 9 }
	for _, c := range []struct {
		s          blend.Selection
		deviations []float64
		always     func(int) bool
		want       []int
	}{
		{blend.Selection{Ratio: 0.2}, []float64{0, 3, 1, 2, 0}, none, []int{3, 8}},
		{blend.Selection{Ratio: 0.29}, []float64{0, 3, 1, 2, 0}, none, []int{3, 8}}, // 2.9 tokens are 2
		{blend.Selection{Ratio: 0.2}, []float64{1, 1, 1, 1, 1}, none, []int{2, 3}},  // of equal ones the rows in front
		{blend.Selection{Ratio: 0.2}, []float64{0, 3, 1, 2, 0}, last, []int{3, 9}},  // inside the budget
		{blend.Selection{Ratio: 0.25, Beyond: true}, []float64{0, 3, 1, 2, 0}, last, []int{3, 8, 9}},
		{blend.Selection{}, []float64{0, 3, 1, 2, 0}, last, []int{9}},
		{blend.Selection{Ratio: 0.1}, []float64{0, 3, 1, nan, 0}, none, []int{8}},
		{blend.Selection{Ratio: 0.1}, []float64{0, inf, 1, nan, 0}, none, []int{3}}, // equal: the row in front
		{blend.Selection{Threshold: 1}, []float64{0, nan, 1, inf, 0}, none, []int{3, 8}},
		{blend.Selection{Threshold: inf}, []float64{0, 3, 1, inf, 0}, none, nil},
		{blend.Selection{Ratio: 1}, []float64{0, 3, 1, 2, 0}, none, rows},
		{blend.Selection{Threshold: 1}, []float64{0, 3, 1, 2, 0}, none, []int{3, 8}},
		{blend.Selection{Threshold: 1, Ratio: 0.1}, []float64{0, 3, 1, 2, 0}, none, []int{3}},
		{blend.Selection{Threshold: 5}, []float64{0, 3, 1, 2, 0}, last, []int{9}},
		// All that is always selected.
		{blend.Selection{Ratio: 0.1}, []float64{0, 0, 0, 0, 0}, func(row int) bool { return row < 8 }, []int{2, 3, 5}},
	} {
		got, err := c.s.Select(10, rows, c.deviations, c.always)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v %v", c.s, c.deviations)
	}
	for _, s := range []blend.Selection{{Ratio: -0.1}, {Ratio: 1.1}, {Ratio: nan}, {Threshold: -1}, {Threshold: nan}} {
		_, err := s.Select(10, rows, make([]float64, 5), none)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	_, err := blend.Selection{}.Select(10, rows, nil, none)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = blend.Selection{}.Select(4, rows, make([]float64, 5), none)
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func TestDeviation(t *testing.T) {
	for _, d := range []rope.DType{rope.F32, rope.F16, rope.BF16} {
		fresh, old := make([]byte, 4*d.Size()), make([]byte, 4*d.Size())
		d.Encode(fresh, []float32{1, 2, -3, 4})
		d.Encode(old, []float32{1, 4, 0, 0})
		got := make([]float64, 2)
		require.NoError(t, blend.Deviation(got, fresh, old, 2, d))
		require.Equal(t, []float64{4, 25}, got)
		require.ErrorIs(t, blend.Deviation(got, fresh, old[1:], 2, d), fs.ErrInvalid)
		require.ErrorIs(t, blend.Deviation(got, fresh, old, 3, d), fs.ErrInvalid)
	}
	require.ErrorIs(t, blend.Deviation(nil, nil, nil, 2, rope.DType(7)), fs.ErrInvalid)
}

// TestPlanOfAPrompt goes through a plan with two checks, gaps, a prefix and a query.
func TestPlanOfAPrompt(t *testing.T) {
	plan, err := blend.NewPlan(blend.PlanOptions{
		Layers: 5, Tokens: 12, Prefix: 2, Suffix: 2,
		Cover: []blend.Match{{Start: 0, End: 4}, {Start: 5, End: 10}}, // 4 is a gap
		Checks: []blend.Check{
			{Layer: 1, Selection: blend.Selection{Ratio: 0.5}}, {Layer: 3, Selection: blend.Selection{Ratio: 0.34}},
		},
	})
	require.NoError(t, err)
	all := []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	step, err := plan.Step()
	require.NoError(t, err)
	require.Equal(t, blend.Step{Layer: 0, Rows: all, Write: all, Attend: all}, step)
	_, err = plan.Select(make([]float64, 10))
	require.ErrorIs(t, err, fs.ErrInvalid, "layer 0 has no check")

	step, err = plan.Step()
	require.NoError(t, err)
	require.Equal(t, blend.Step{Layer: 1, Check: true, Rows: all}, step)
	_, err = plan.Step()
	require.ErrorIs(t, err, fs.ErrInvalid, "the check needs its deviations")
	_, err = plan.Select(make([]float64, 9))
	require.ErrorIs(t, err, fs.ErrInvalid)
	step, err = plan.Select([]float64{9, 1, 0, 1, 8, 7, 1, 1, 0, 0})
	require.NoError(t, err)
	first := []int{2, 4, 6, 7, 10, 11}
	require.Equal(t, blend.Step{Layer: 1, Check: true, Rows: all, Write: first, Attend: first}, step)

	step, err = plan.Step()
	require.NoError(t, err)
	require.Equal(t, blend.Step{Layer: 2, Rows: first, Write: first, Attend: first}, step)
	_, err = plan.Step()
	require.NoError(t, err)
	step, err = plan.Select([]float64{1, 0, 3, 2, 0, 0})
	require.NoError(t, err)
	require.Equal(t, []int{4, 6, 10, 11}, step.Attend)
	step, err = plan.Step()
	require.NoError(t, err)
	require.Equal(t, 4, step.Layer)
	require.Equal(t, []int{4, 6, 10, 11}, step.Rows)
	_, err = plan.Step()
	require.ErrorIs(t, err, fs.ErrInvalid, "there are no more layers")
}

func TestKeepFreshWritesWhatWasCompared(t *testing.T) {
	plan, err := blend.NewPlan(blend.PlanOptions{
		Layers: 2, Tokens: 4, Cover: []blend.Match{{Start: 0, End: 4}},
		Checks: []blend.Check{{Layer: 0, Selection: blend.Selection{Ratio: 0.5}}}, KeepFresh: true,
	})
	require.NoError(t, err)
	_, err = plan.Step()
	require.NoError(t, err)
	step, err := plan.Select([]float64{0, 5, 0, 0})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3}, step.Write)
	require.Equal(t, []int{1, 3}, step.Attend, "the last token is always computed: its logits are the answer")
}

func TestWhatIsNoPlanIsRefused(t *testing.T) {
	good := blend.PlanOptions{Layers: 4, Tokens: 10, Cover: []blend.Match{{Start: 0, End: 5}}}
	require.NoError(t, good.Validate())
	for _, change := range []func(o *blend.PlanOptions){
		func(o *blend.PlanOptions) { o.Layers = 0 },
		func(o *blend.PlanOptions) { o.Tokens = 0 },
		func(o *blend.PlanOptions) { o.Tokens = 1 << 30 },
		func(o *blend.PlanOptions) { o.Prefix = 10 },
		func(o *blend.PlanOptions) { o.Prefix = 6 }, // no chunk has the last one
		func(o *blend.PlanOptions) { o.Prefix = -1 },
		func(o *blend.PlanOptions) { o.Suffix = 11 },
		func(o *blend.PlanOptions) { o.Cover = []blend.Match{{Start: 0, End: 5}, {Start: 4, End: 6}} },
		func(o *blend.PlanOptions) { o.Cover = []blend.Match{{Start: 3, End: 3}} },
		func(o *blend.PlanOptions) { o.Cover = []blend.Match{{Start: 3, End: 11}} },
		func(o *blend.PlanOptions) { o.Checks = []blend.Check{{Layer: 4}} },
		func(o *blend.PlanOptions) { o.Checks = []blend.Check{{Layer: 1}, {Layer: 1}} },
		func(o *blend.PlanOptions) { o.Checks = []blend.Check{{Selection: blend.Selection{Ratio: 2}}} },
	} {
		o := good
		change(&o)
		_, err := blend.NewPlan(o)
		require.ErrorIs(t, err, fs.ErrInvalid, "%+v", o)
	}
}

// TestPlansHoldTheirRules draws prompts: gaps and query are computed in every layer, the prefix in none, and
// rows only become fewer.
func TestPlansHoldTheirRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := blend.PlanOptions{
			Layers: rapid.IntRange(1, 5).Draw(t, "layers"), Tokens: rapid.IntRange(1, 30).Draw(t, "tokens"),
		}
		for at := 0; at < o.Tokens; {
			n := rapid.IntRange(1, 8).Draw(t, "length")
			if rapid.Bool().Draw(t, "chunk") && at+n <= o.Tokens {
				o.Cover = append(o.Cover, blend.Match{Start: at, End: at + n})
			}
			at += n
		}
		o.Prefix = min(blend.Exact(o.Cover), o.Tokens-1)
		o.Suffix = rapid.IntRange(0, o.Tokens-o.Prefix).Draw(t, "suffix")
		o.KeepFresh = rapid.Bool().Draw(t, "keep")
		for layer := range o.Layers {
			if rapid.Bool().Draw(t, "check") {
				selection := blend.Selection{Ratio: rapid.Float64Range(0, 1).Draw(t, "ratio")}
				o.Checks = append(o.Checks, blend.Check{Layer: layer, Selection: selection})
			}
		}
		plan, err := blend.NewPlan(o)
		require.NoError(t, err)
		var needed, before []int
		for _, g := range blend.Gaps(o.Cover, o.Tokens) {
			for i := g.Start; i < g.End; i++ {
				needed = append(needed, i)
			}
		}
		for i := o.Tokens - max(1, o.Suffix); i < o.Tokens; i++ {
			needed = append(needed, i)
		}
		for range o.Layers {
			step, err := plan.Step()
			require.NoError(t, err)
			if step.Check {
				d := make([]float64, len(step.Rows))
				for i := range d {
					d[i] = rapid.Float64Range(0, 9).Draw(t, "deviation")
				}
				step, err = plan.Select(d)
				require.NoError(t, err)
			}
			require.True(t, slices.IsSorted(step.Rows) && slices.IsSorted(step.Attend))
			require.Subset(t, step.Attend, needed)
			require.Subset(t, step.Rows, step.Write)
			require.Subset(t, step.Write, step.Attend)
			require.GreaterOrEqual(t, step.Rows[0], o.Prefix)
			if before != nil {
				require.Equal(t, before, step.Rows)
			}
			before = slices.Clone(step.Attend)
		}
	})
}

// TestModelsThatAreComputedOtherwiseAreRefused: estimates for them would be wrong, and blending would be,
// too.
func TestModelsThatAreComputedOtherwiseAreRefused(t *testing.T) {
	config := func(more string) []byte {
		return []byte(`{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8,
			"vocab_size": 9` + more + `}`)
	}
	for _, more := range []string{
		// A part of the weights for each token.
		`, "num_local_experts": 8`, `, "num_experts": 8`, `, "n_routed_experts": 8`,
		`, "kv_lora_rank": 4`,      // one latent vector for all heads
		`, "sliding_window": 4096`, // not all tokens in front
		`, "use_sliding_window": true, "sliding_window": 4096`,
		`, "layer_types": ["full_attention", "sliding_attention"]`,
		`, "layer_types": ["full_attention", "linear_attention"]`,
		`, "num_attention_heads": 0`, `, "num_key_value_heads": 3`, `, "head_dim": -1`,
	} {
		_, err := blend.ParseDims(config(more))
		require.ErrorIs(t, err, fs.ErrInvalid, more)
	}
	_, err := blend.ParseDims([]byte(`[]`))
	require.ErrorIs(t, err, fs.ErrInvalid)
	for _, more := range []string{
		"", `, "sliding_window": null`, `, "use_sliding_window": false, "sliding_window": 4096`,
		`, "layer_types": ["full_attention", "full_attention"], "num_experts": 0`,
	} {
		d, err := blend.ParseDims(config(more))
		require.NoError(t, err, more)
		require.Equal(t, blend.Dims{
			Layers: 2, Hidden: 8, Heads: 2, KVHeads: 2, HeadDim: 4, Intermediate: 8, Vocabulary: 9,
		}, d)
	}
}

func TestWork(t *testing.T) {
	d := blend.Dims{
		Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 14336, Vocabulary: 128256,
	}
	require.NoError(t, d.Validate())
	require.ErrorIs(t, blend.Dims{Layers: 1}.Validate(), fs.ErrInvalid)
	whole := d.Prefill(1000, 0)
	// Llama 3 8B has 6.98e9 weights in its layers.
	attention := 32.0 * 4 * 4096 * 1000 * 1001 / 2
	require.InEpsilon(t, 2*6.98e9*1000+attention+2*4096*128256, whole.FLOPs, 1e-3)
	require.Equal(t, int64(32000), whole.Rows)

	// A plan that computes everything is a whole prefill, and one with a prefix a prefill behind it.
	for _, prefix := range []int{0, 300} {
		plan, err := blend.NewPlan(blend.PlanOptions{
			Layers: 32, Tokens: 1000, Cover: []blend.Match{{Start: 0, End: 300}}, Prefix: prefix,
		})
		require.NoError(t, err)
		var w blend.Work
		for range 32 {
			step, err := plan.Step()
			require.NoError(t, err)
			w.Add(d, step)
		}
		want := d.Prefill(1000, prefix)
		require.InEpsilon(t, want.FLOPs, w.FLOPs, 1e-9)
		require.Equal(t, want.Rows, w.Rows)
	}
}
