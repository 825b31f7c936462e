package blend_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/blend/transformer"
	"github.com/ringcache/ringcache/encoder/safetensors"
)

// golden is a file of testdata/oracle.py.
type golden struct {
	t      *testing.T
	file   []byte
	header *safetensors.Header
}

func openGolden(t *testing.T, name string) golden {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "golden-"+name+".safetensors"))
	require.NoError(t, err)
	header, err := safetensors.Parse(file)
	require.NoError(t, err)
	return golden{t, file, header}
}

func (g golden) bytes(name string) []byte {
	for i := range g.header.Tensors {
		if g.header.Tensors[i].Name == name {
			return g.header.Tensors[i].Bytes(g.file)
		}
	}
	require.Fail(g.t, "no tensor", name)
	return nil
}

func (g golden) floats(name string) []float32 { return floats(g.bytes(name), rope.F32) }

func (g golden) integers(name string) []int64 {
	b := g.bytes(name)
	out := make([]int64, len(b)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}

func (g golden) metadata(name string, to any) {
	require.NoError(g.t, json.Unmarshal([]byte(g.header.Metadata[name]), to))
}

func floats(b []byte, d rope.DType) []float32 {
	out := make([]float32, len(b)/d.Size())
	d.Decode(out, b)
	return out
}

// difference is the norm of a - b over that of b.
func difference(a, b []float32) float64 {
	var above, below float64
	for i, x := range a {
		above += math.Pow(float64(x)-float64(b[i]), 2)
		below += float64(b[i]) * float64(b[i])
	}
	if above == 0 {
		return 0
	}
	return math.Sqrt(above / below)
}

// TestAgainstNumpy compares whole runs with the oracle: KV and logits within 1e-4, the selected rows
// identical.
func TestAgainstNumpy(t *testing.T) {
	for _, name := range []string{"llama3", "yarn"} {
		t.Run(name, func(t *testing.T) {
			g := openGolden(t, name)
			model, err := transformer.Load([]byte(g.header.Metadata["config"]), g.file)
			require.NoError(t, err)
			var cases []struct {
				Measure   blend.Measure
				Ratio     float64
				KeepFresh bool `json:"keep_fresh"`
			}
			var starts, lengths []int
			var query int
			g.metadata("cases", &cases)
			g.metadata("starts", &starts)
			g.metadata("lengths", &lengths)
			g.metadata("query", &query)
			require.Len(t, cases, 16)
			tokens, shape := g.integers("tokens"), model.Shape(rope.F32)

			full, err := blend.New(shape, len(tokens))
			require.NoError(t, err)
			result, err := model.Prefill(full, tokens, 0)
			require.NoError(t, err)
			kvError := difference(floats(full.Bytes, rope.F32), g.floats("full"))
			logitError := difference(result.Logits[len(tokens)-1], g.floats("full.logits"))
			require.Less(t, max(kvError, logitError), 1e-4)
			for _, last := range []int{1, 2, 1000} { // rows whose logits are asked for
				plan, err := blend.NewPlan(blend.PlanOptions{Layers: shape.Layers, Tokens: len(tokens)})
				require.NoError(t, err)
				some, err := model.Blend(clone(full), tokens, plan, transformer.Options{Logits: last})
				require.NoError(t, err)
				require.Equal(t, result.Logits[max(0, len(tokens)-last):], some.Logits)
			}

			p := prompt{tokens: tokens, suffix: query}
			for i, start := range starts {
				p.cover = append(p.cover, blend.Match{Start: start, End: start + lengths[i]})
			}
			old := p.move(t, model, rope.F32)
			oldError := difference(floats(old.Bytes, rope.F32), g.floats("old"))
			require.Less(t, oldError, 1e-4)

			worst, deviationError := 0.0, 0.0
			for i, c := range cases {
				kv := clone(old)
				result := p.blend(t, model, kv, c.Measure, blend.PlanOptions{
					Checks:    []blend.Check{{Layer: 1, Selection: blend.Selection{Ratio: c.Ratio}}},
					KeepFresh: c.KeepFresh,
				})
				prefix := fmt.Sprint("case", i)
				rows := []int64{}
				for _, r := range result.Rows {
					rows = append(rows, int64(r))
				}
				require.Equal(t, g.integers(prefix+".rows"), rows, "%+v", c)
				e := difference(result.Logits[len(rows)-1], g.floats(prefix+".logits"))
				if c.Measure == blend.Keys && c.Ratio == 0.3 && !c.KeepFresh {
					e = max(e, difference(floats(kv.Bytes, rope.F32), g.floats(prefix+".kv")))
				}
				require.Less(t, e, 1e-4, "%+v", c)
				worst = max(worst, e)
				want := g.floats("deviations")[int(c.Measure)*len(tokens):][:len(tokens)]
				got := make([]float32, len(tokens))
				for i, d := range result.Deviations {
					got[i] = float32(d)
				}
				deviationError = max(deviationError, difference(got, want))
				require.Less(t, deviationError, 1e-4)
			}
			t.Logf("relative error of KV %.1e, of logits %.1e; of moved chunks %.1e, of deviations %.1e; "+
				"of %d blends %.1e, all rows identical",
				kvError, logitError, oldError, deviationError, len(cases), worst)
		})
	}
}
