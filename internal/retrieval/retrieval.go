// Package retrieval is a synthetic task for package blend: questions about documents, some of which can't be
// understood without those in front of them. The prompts are those that the model in blend/testdata was
// trained on (retrieval_train.py).
package retrieval

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
	"github.com/ringcache/ringcache/blend/transformer"
)

// Tokens: see retrieval_train.py.
const (
	doc, same, ask                   = 1, 2, 3
	firstSubject, subjects           = 8, 32
	firstAttribute, attributes       = 40, 16
	firstValue, values               = 56, 64
	firstFiller, fillers             = 120, 8
	documents, facts, documentTokens = 8, 3, 2 + 3*facts
	query                            = 3
)

// A Prompt is documents, and a question.
type Prompt struct {
	Tokens []int64
	Cover  []blend.Match // each document
	Query  int           // tokens of the question, at the end
	Answer int
	// Pronoun is set if the document with the answer has no name of its subject: that is in one in front of
	// it.
	Pronoun bool
}

// Draw draws a prompt. Every other one, by number, asks about a document with a pronoun.
func Draw(r *rand.Rand, number int) Prompt {
	type fact struct {
		subject, attribute int64
		answer             int
		pronoun            bool
	}
	p := Prompt{Query: query}
	var known []fact
	names := r.Perm(subjects)
	var left []int
	var named int64
	run := 0
	for i := range documents {
		pronoun := i > 0 && run < 2 && r.Float64() < 0.6
		run++
		subject := int64(same)
		if !pronoun {
			run, named, left = 0, int64(firstSubject+names[i]), r.Perm(attributes)
			subject = named
		}
		p.Cover = append(p.Cover, blend.Match{Start: len(p.Tokens), End: len(p.Tokens) + documentTokens})
		p.Tokens = append(p.Tokens, doc, subject)
		for range facts {
			f := fact{named, int64(firstAttribute + left[0]), firstValue + r.IntN(values), pronoun}
			left = left[1:]
			known = append(known, f)
			p.Tokens = append(p.Tokens, f.attribute, int64(f.answer), firstFiller+r.Int64N(fillers))
		}
	}
	var asked []fact
	for _, f := range known {
		if f.pronoun == (number%2 == 0) {
			asked = append(asked, f)
		}
	}
	if len(asked) == 0 { // no pronoun was drawn
		return Draw(r, number)
	}
	f := asked[r.IntN(len(asked))]
	p.Tokens = append(p.Tokens, ask, f.subject, f.attribute)
	p.Answer, p.Pronoun = f.answer, f.pronoun
	return p
}

// A Way is how a prompt is computed. The query is always computed, in addition to Ratio of the tokens in
// front.
type Way struct {
	Ratio     float64 // 0 is plain concatenation, and 1 a whole prefill
	Layer     int     // of the check
	Random    bool    // tokens by chance, and not by the deviation of their keys
	KeepFresh bool
}

// An Outcome is what a way did to prompts.
type Outcome struct {
	Named, Pronoun           int // right answers about documents of both kinds
	AskedNamed, AskedPronoun int
	// KVError is the relative error of keys and values, by layer, and Divergence that of the answer's
	// distribution from that of a whole prefill (Kullback-Leibler, nats): means of all prompts.
	KVError    []float64
	Divergence float64
	// Rows is the mean of the tokens that were computed behind the check, of a prompt's.
	Rows, Tokens float64
}

// Try computes prompts in each way. The same seed draws the same prompts.
func Try(model *transformer.Model, ways []Way, prompts int, seed uint64) ([]Outcome, error) {
	out := make([]Outcome, len(ways))
	for i := range out {
		out[i].KVError = make([]float64, model.Dims().Layers)
	}
	r, chance := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	for number := range prompts {
		p := Draw(r, number)
		compared, err := Compare(model, p, ways, chance)
		if err != nil {
			return nil, err
		}
		for i, c := range compared {
			out[i].count(p, c, float64(prompts))
		}
	}
	return out, nil
}

// A Comparison is one prompt, computed in one way and as a whole prefill.
type Comparison struct {
	KVError []float64 // by layer, as in an Outcome
	Rows    int       // tokens that were computed behind the check
	// Got and Want are the logits of the query's tokens.
	Got, Want [][]float32
}

// Compare computes a prompt in each way.
func Compare(model *transformer.Model, p Prompt, ways []Way, chance *rand.Rand) ([]Comparison, error) {
	full, err := blend.New(model.Shape(rope.F32), len(p.Tokens))
	if err != nil {
		return nil, err
	}
	want, err := prefill(model, full, p.Tokens, p.Query)
	if err != nil {
		return nil, err
	}
	moved, err := move(model, p)
	if err != nil {
		return nil, err
	}
	var out []Comparison
	for _, w := range ways {
		kv := moved
		kv.Bytes = slices.Clone(moved.Bytes)
		got, err := p.blend(model, kv, w, chance)
		if err != nil {
			return nil, err
		}
		out = append(out, Comparison{
			kvError(kv, full), len(got.Rows), got.Logits, want.Logits,
		})
	}
	return out, nil
}

// prefill computes all tokens, and the logits of the last ones.
func prefill(model *transformer.Model, kv blend.KV, tokens []int64, logits int) (*transformer.Result, error) {
	plan, err := blend.NewPlan(blend.PlanOptions{Layers: model.Dims().Layers, Tokens: len(tokens)})
	if err != nil {
		return nil, err
	}
	return model.Blend(kv, tokens, plan, transformer.Options{Logits: logits})
}

// move computes each document alone and moves it to its place.
func move(model *transformer.Model, p Prompt) (blend.KV, error) {
	kv, err := blend.New(model.Shape(rope.F32), len(p.Tokens))
	if err != nil {
		return kv, err
	}
	var moves []*blend.Move
	for _, m := range p.Cover {
		chunk, err := blend.New(kv.Shape, m.End-m.Start)
		if err != nil {
			return kv, err
		}
		if _, err := prefill(model, chunk, p.Tokens[m.Start:m.End], 1); err != nil {
			return kv, err
		}
		move, err := blend.NewMove(model.Table(), kv, m.Start, blend.Chunk{KV: chunk})
		if err != nil {
			return kv, err
		}
		moves = append(moves, move)
	}
	return kv, blend.MoveAll(moves, 0)
}

func (p Prompt) blend(model *transformer.Model, kv blend.KV, w Way, chance *rand.Rand) (*transformer.Result, error) {
	check := blend.Check{Layer: w.Layer, Selection: blend.Selection{Ratio: w.Ratio, Beyond: true}}
	if w.Ratio == 0 {
		check.Layer = 0 // nothing but the query is computed in any layer
	}
	plan, err := blend.NewPlan(blend.PlanOptions{
		Layers: model.Dims().Layers, Tokens: len(p.Tokens), Cover: p.Cover, Suffix: p.Query,
		Checks: []blend.Check{check}, KeepFresh: w.KeepFresh && w.Ratio > 0,
	})
	if err != nil {
		return nil, err
	}
	o := transformer.Options{Logits: p.Query}
	if w.Random {
		o.Deviations = func(_ int, rows []int) []float64 {
			out := make([]float64, len(rows))
			for i := range out {
				out[i] = chance.Float64()
			}
			return out
		}
	}
	return model.Blend(kv, p.Tokens, plan, o)
}

func (o *Outcome) count(p Prompt, c Comparison, prompts float64) {
	got, want := c.Got[p.Query-1], c.Want[p.Query-1]
	right := 0
	if Largest(got) == p.Answer {
		right = 1
	}
	if p.Pronoun {
		o.AskedPronoun, o.Pronoun = o.AskedPronoun+1, o.Pronoun+right
	} else {
		o.AskedNamed, o.Named = o.AskedNamed+1, o.Named+right
	}
	for layer, e := range c.KVError {
		o.KVError[layer] += e / prompts
	}
	o.Divergence += Divergence(want, got) / prompts
	o.Tokens += float64(len(p.Tokens)) / prompts
	o.Rows += float64(c.Rows) / prompts
}

// kvError returns the relative error of keys and values, by layer.
func kvError(kv, full blend.KV) []float64 {
	out := make([]float64, kv.Layers)
	for layer := range out {
		above, below := 0.0, 0.0
		for _, planes := range [][2][]byte{{kv.Keys(layer), full.Keys(layer)}, {kv.Values(layer), full.Values(layer)}} {
			a, b := make([]float32, len(planes[0])/4), make([]float32, len(planes[1])/4)
			rope.F32.Decode(a, planes[0])
			rope.F32.Decode(b, planes[1])
			for i, x := range a {
				above += math.Pow(float64(x-b[i]), 2)
				below += math.Pow(float64(b[i]), 2)
			}
		}
		out[layer] = math.Sqrt(above / below)
	}
	return out
}

// Largest returns which of x is the largest.
func Largest(x []float32) int {
	at := 0
	for i := range x {
		if x[i] > x[at] {
			at = i
		}
	}
	return at
}

// Divergence returns that of the distribution with the logits b from the one with a.
func Divergence(a, b []float32) float64 {
	la, lb := logSum(a), logSum(b)
	sum := 0.0
	for i := range a {
		pa, pb := float64(a[i])-la, float64(b[i])-lb
		sum += math.Exp(pa) * (pa - pb)
	}
	return max(0, sum)
}

func logSum(x []float32) float64 {
	top := float64(x[Largest(x)])
	sum := 0.0
	for _, e := range x {
		sum += math.Exp(float64(e) - top)
	}
	return top + math.Log(sum)
}
