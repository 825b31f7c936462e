package transformer

import (
	"math"

	"github.com/ringcache/ringcache/blend"
	"github.com/ringcache/ringcache/blend/rope"
)

// A Result is what a prompt gave.
type Result struct {
	// Logits are those of the rows that went through the last layer, whose numbers are Rows, or of the last of
	// them; the last row is the last token.
	Logits [][]float32
	Rows   []int
	// Selected are the rows that were left behind each layer.
	Selected [][]int
	// Deviations are those of the last check, of its rows.
	Deviations []float64
	Work       blend.Work
}

// Options say how a prompt is blended.
type Options struct {
	// Measure is what deviations are computed of.
	Measure blend.Measure
	// Deviations, if it is not nil, returns those of the rows of a check, in place of the measure.
	Deviations func(layer int, rows []int) []float64
	// Logits is of how many of the last rows logits are computed, 0 for all.
	Logits int
	// Before, if it is not nil, is called before each layer: what the KV has of the layer is needed from then
	// on.
	Before func(layer int) error
}

// Prefill computes the KV of tokens whose first one is at a position, into kv, and their logits.
func (m *Model) Prefill(kv blend.KV, tokens []int64, position int) (*Result, error) {
	plan, err := blend.NewPlan(blend.PlanOptions{Layers: m.dims.Layers, Tokens: len(tokens)})
	if err != nil {
		return nil, err
	}
	return m.run(kv, tokens, position, plan, Options{})
}

// Blend computes what a plan for the prompt asks for. kv has the chunks of the prompt in their places.
func (m *Model) Blend(kv blend.KV, tokens []int64, plan *blend.Plan, o Options) (*Result, error) {
	return m.run(kv, tokens, 0, plan, o)
}

func (m *Model) run(kv blend.KV, tokens []int64, position int, plan *blend.Plan, o Options) (*Result, error) {
	if kv.Shape != m.Shape(kv.DType) || kv.Tokens != len(tokens) {
		return nil, invalid("KV of %d tokens and %+v for a prompt of %d and %+v",
			kv.Tokens, kv.Shape, len(tokens), m.Shape(kv.DType))
	}
	if _, err := blend.View(kv.Shape, kv.Tokens, kv.Bytes); err != nil {
		return nil, err
	}
	for _, t := range tokens {
		if t < 0 || t >= int64(m.dims.Vocabulary) {
			return nil, invalid("token %d of %d", t, m.dims.Vocabulary)
		}
	}
	out := &Result{}
	var hidden []float32
	for i := range m.layers {
		if o.Before != nil {
			if err := o.Before(i); err != nil {
				return nil, err
			}
		}
		step, err := plan.Step()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			if last := step.Rows[len(step.Rows)-1]; last != len(tokens)-1 {
				return nil, invalid("a plan for %d tokens, and a prompt of %d", last+1, len(tokens))
			}
			for _, row := range step.Rows {
				d := m.dims.Hidden
				hidden = append(hidden, m.embedding[int(tokens[row])*d:(int(tokens[row])+1)*d]...)
			}
		}
		if step, hidden, err = m.step(kv, plan, step, hidden, position, o, out); err != nil {
			return nil, err
		}
		out.Selected = append(out.Selected, step.Attend)
		out.Work.Add(m.dims, step)
		out.Rows = step.Attend
	}
	if _, err := plan.Step(); err == nil {
		return nil, invalid("a plan for more than %d layers", m.dims.Layers)
	}
	wanted := len(out.Rows)
	if o.Logits > 0 {
		wanted = min(wanted, o.Logits)
	}
	logits := m.head.apply(m.normalize(hidden[len(hidden)-wanted*m.dims.Hidden:], m.norm))
	for i := range wanted {
		out.Logits = append(out.Logits, logits[i*m.dims.Vocabulary:(i+1)*m.dims.Vocabulary])
	}
	return out, nil
}

// step computes a layer, and returns the step with what was selected, and the hidden states of these rows
// behind the layer.
//
// See docs/decisions.md, "Rows are computed alike, whoever is beside them".
func (m *Model) step(
	kv blend.KV, plan *blend.Plan, step blend.Step, hidden []float32, position int, o Options, out *Result,
) (blend.Step, []float32, error) {
	l := &m.layers[step.Layer]
	x := m.normalize(hidden, l.attentionNorm)
	q, k, v := l.q.apply(x), l.k.apply(x), l.v.apply(x)
	for i, row := range step.Rows {
		r := m.table.At(position + row)
		for _, part := range [][]float32{q[i*l.q.out : (i+1)*l.q.out], k[i*l.k.out : (i+1)*l.k.out]} {
			if err := r.Floats(part, part); err != nil {
				return step, nil, err
			}
		}
	}
	keys, values := encode(k, kv.DType), encode(v, kv.DType)
	oldKeys, oldValues := kv.Keys(step.Layer), kv.Values(step.Layer)
	if step.Check {
		var err error
		if out.Deviations, err = m.deviations(kv, step, keys, values, o); err != nil {
			return step, nil, err
		}
		if step, err = plan.Select(out.Deviations); err != nil {
			return step, nil, err
		}
	}
	written := places(step.Rows, step.Write)
	if err := kv.Replace(oldKeys, step.Write, pick(keys, written, kv.Row())); err != nil {
		return step, nil, err
	}
	if err := kv.Replace(oldValues, step.Write, pick(values, written, kv.Row())); err != nil {
		return step, nil, err
	}
	attending := places(step.Rows, step.Attend)
	q, hidden = pick(q, attending, l.q.out), pick(hidden, attending, m.dims.Hidden)
	allKeys, allValues := decode(oldKeys, kv.DType), decode(oldValues, kv.DType)
	attended := make([]float32, len(q))
	for i, row := range step.Attend {
		m.attend(attended[i*l.q.out:(i+1)*l.q.out], q[i*l.q.out:(i+1)*l.q.out], allKeys, allValues, row+1)
	}
	add(hidden, l.o.apply(attended))
	y := m.normalize(hidden, l.mlpNorm)
	gate, up := l.gate.apply(y), l.up.apply(y)
	for i, g := range gate {
		gate[i] = g / (1 + float32(math.Exp(-float64(g)))) * up[i]
	}
	add(hidden, l.down.apply(gate))
	return step, hidden, nil
}

func (m *Model) deviations(kv blend.KV, step blend.Step, keys, values []byte, o Options) ([]float64, error) {
	if o.Deviations != nil {
		return o.Deviations(step.Layer, step.Rows), nil
	}
	fresh, old := keys, kv.Keys(step.Layer)
	if o.Measure == blend.Values {
		fresh, old = values, kv.Values(step.Layer)
	}
	out := make([]float64, len(step.Rows))
	return out, blend.Deviation(out, fresh, pick(old, step.Rows, kv.Row()), kv.Heads*kv.HeadDim, kv.DType)
}

// attend computes attention of one token to the first n of all.
func (m *Model) attend(dst, q, keys, values []float32, n int) {
	size, row := m.dims.HeadDim, m.dims.HeadDim*m.dims.KVHeads
	scale := float32(1 / math.Sqrt(float64(size)))
	scores := make([]float32, n)
	for h := range m.dims.Heads {
		at := h / (m.dims.Heads / m.dims.KVHeads) * size // of the head of keys, in a row
		query, to := q[h*size:(h+1)*size], dst[h*size:(h+1)*size]
		top := float32(math.Inf(-1))
		for i := range scores {
			scores[i] = dot(query, keys[i*row+at:i*row+at+size]) * scale
			top = max(top, scores[i])
		}
		var sum float32
		for i, s := range scores {
			scores[i] = float32(math.Exp(float64(s - top)))
			sum += scores[i]
		}
		for i, s := range scores {
			s /= sum
			for j, v := range values[i*row+at : i*row+at+size] {
				to[j] += float32(s * v)
			}
		}
	}
}

func add(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}

// pick returns a copy of rows of x.
func pick[T any](x []T, rows []int, width int) []T {
	out := make([]T, 0, len(rows)*width)
	for _, r := range rows {
		out = append(out, x[r*width:(r+1)*width]...)
	}
	return out
}

// places returns where the rows some are among the rows all; both rise.
func places(all, some []int) []int {
	out := make([]int, 0, len(some))
	i := 0
	for _, row := range some {
		for all[i] != row {
			i++
		}
		out = append(out, i)
	}
	return out
}

func encode(x []float32, d rope.DType) []byte {
	b := make([]byte, len(x)*d.Size())
	d.Encode(b, x)
	return b
}

func decode(b []byte, d rope.DType) []float32 {
	x := make([]float32, len(b)/d.Size())
	d.Decode(x, b)
	return x
}
