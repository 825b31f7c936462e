package chunks

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// ExplainOptions say how a prompt would be blended.
type ExplainOptions struct {
	Space  string        // only this one; empty is all that have chunks
	Suffix int           // tokens of the query
	Checks []blend.Check // without thresholds: how many deviations are above one is not known
	// Dims, if it is not nil, is the model, for estimates of work.
	Dims *blend.Dims
}

// An Explanation is what one space has of a prompt.
type Explanation struct {
	Space  string      `json:"space"`
	Shape  blend.Shape `json:"shape"`
	Window int         `json:"chunk"` // tokens of a chunk
	Known  int         `json:"known"` // chunks in the space

	Chunks []Found       `json:"chunks"`
	Gaps   []blend.Range `json:"gaps"`
	Tokens int           `json:"tokens"` // of the prompt
	// Exact tokens at the front have the KV of a whole prefill, and are not computed.
	Exact int `json:"exact"`
	// Rows is how many tokens are computed, by layer: those that go through the whole layer.
	Rows []int `json:"computed"`
	// Moved are the bytes of the chunks; half of them are keys. Only those that change their position are
	// rotated.
	Moved   int64 `json:"moved_bytes"`
	Rotated int64 `json:"rotated_bytes"`
	// Prefill, Prefixed and Blend are estimates of the work of a whole prefill, of one behind the exact
	// prefix, which is what a prefix cache leaves to compute, and of blending. They are zero without Dims.
	Prefill  blend.Work `json:"prefill"`
	Prefixed blend.Work `json:"prefixed"`
	Blend    blend.Work `json:"blend"`
}

// Found is a chunk of a prompt.
type Found struct {
	blend.Match
	Position  int  `json:"position"` // that it was computed at
	Unrotated bool `json:"unrotated"`
}

// Explain looks which chunks of a prompt a level has, and says what would be computed. It reads no KV. The
// names must be LMCache's default ones, as a library with the zero scheme makes them; segments are left out.
func Explain(ctx context.Context, level tier.Level, prompt []int64, o ExplainOptions) ([]Explanation, error) {
	type kind struct {
		space  string
		shape  blend.Shape
		window int
	}
	for _, c := range o.Checks {
		if c.Threshold != 0 {
			return nil, invalid("a threshold of %v: without KV nothing has deviations", c.Threshold)
		}
	}
	notes := map[kind]map[string]Note{}
	for object, err := range level.List(ctx, o.Space) {
		if err != nil {
			return nil, err
		}
		note, err := ReadNote(object)
		if err != nil || note.Segment {
			continue // not a chunk of ours, or one that is found only by its separators
		}
		k := kind{object.Space, note.Shape, note.Tokens}
		if notes[k] == nil {
			notes[k] = map[string]Note{}
		}
		notes[k][object.Name] = note
	}
	// Chunks of one length after the other: they take turns in one index, whose table is large.
	kinds := slices.SortedFunc(maps.Keys(notes), func(a, b kind) int {
		return cmp.Or(
			cmp.Compare(a.window, b.window), cmp.Compare(a.space, b.space),
			cmp.Compare(a.shape.Layers, b.shape.Layers), cmp.Compare(a.shape.Row(), b.shape.Row()),
			cmp.Compare(a.shape.DType, b.shape.DType),
		)
	})
	var out []Explanation
	var index *blend.Index
	for _, k := range kinds {
		if index == nil || index.Window() != k.window {
			var err error
			if index, err = blend.NewIndex(kv.Scheme{ChunkTokens: k.window}); err != nil {
				return nil, err
			}
		}
		for name, note := range notes[k] {
			if err := index.Insert(note.Fingerprint, name); err != nil {
				return nil, err
			}
		}
		matches, err := index.Find(prompt)
		if err != nil {
			return nil, err
		}
		for name := range notes[k] {
			index.Remove(name)
		}
		e := Explanation{
			Space: k.space, Shape: k.shape, Window: k.window, Known: len(notes[k]), Tokens: len(prompt),
			Chunks: []Found{}, Gaps: []blend.Range{},
		}
		cover := blend.Optimal(matches)
		for _, m := range cover {
			note := notes[k][m.Name]
			e.Chunks = append(e.Chunks, Found{m, note.Position, note.Unrotated})
			e.Moved += k.shape.Bytes(note.Tokens)
			if note.Unrotated || note.Position != m.Start {
				e.Rotated += k.shape.Bytes(note.Tokens) / 2
			}
		}
		if len(cover) > 0 && (e.Chunks[0].Unrotated || e.Chunks[0].Position == 0) {
			e.Exact = min(blend.Exact(cover), len(prompt)-1)
		}
		e.Gaps = append(e.Gaps, blend.Gaps(cover, len(prompt))...)
		if err := e.plan(cover, o); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Explanation) int { return cmp.Compare(a.Space, b.Space) })
	return out, nil
}

// plan goes through the layers. Which tokens are selected is not known, but how many.
func (e *Explanation) plan(cover []blend.Match, o ExplainOptions) error {
	if o.Dims != nil {
		if o.Dims.Layers != e.Shape.Layers || o.Dims.KVHeads != e.Shape.Heads || o.Dims.HeadDim != e.Shape.HeadDim {
			return invalid("%s has KV of %+v, and the model is %+v", e.Space, e.Shape, *o.Dims)
		}
		e.Prefill, e.Prefixed = o.Dims.Prefill(e.Tokens, 0), o.Dims.Prefill(e.Tokens, e.Exact)
	}
	plan, err := blend.NewPlan(blend.PlanOptions{
		Layers: e.Shape.Layers, Tokens: e.Tokens, Cover: cover, Prefix: e.Exact, Suffix: o.Suffix, Checks: o.Checks,
	})
	if err != nil {
		return err
	}
	for range e.Shape.Layers {
		step, err := plan.Step()
		if err == nil && step.Check {
			step, err = plan.Select(make([]float64, len(step.Rows)))
		}
		if err != nil {
			return err
		}
		e.Rows = append(e.Rows, len(step.Attend))
		if o.Dims != nil {
			e.Blend.Add(*o.Dims, step)
		}
	}
	return nil
}
