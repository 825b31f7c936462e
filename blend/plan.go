package blend

import "slices"

// A Check is a layer at which the tokens are selected that are computed further. The layers in front of the
// first check are computed for all tokens, as the check's own keys and values are, with which the old ones
// are compared.
type Check struct {
	Layer int
	Selection
}

// PlanOptions describe a prompt and what is to be computed of it.
type PlanOptions struct {
	Layers int
	Tokens int // of the prompt
	// Cover is the chunks that were moved into the KV of the prompt. They do not overlap, and are in order.
	// What lies between them has no KV, and is always computed.
	Cover []Match
	// Prefix is how many tokens from the first on have the KV that they would have if all was computed, as
	// those of a prefix cache: they are never computed, and must be part of the cover. At least one token has
	// to be left.
	Prefix int
	// Suffix is how many tokens at the end, the query, are always computed. At least the last token is.
	Suffix int
	// Checks have rising layers and choose among the tokens that the one in front has left. Without one, all
	// tokens are computed. A check at layer 0 with the ratio 0 computes only what is always computed: plain
	// concatenation.
	Checks []Check
	// KeepFresh replaces the keys and values of all tokens that were compared at a check, and not only of
	// those that are selected: they were computed anyway, and are nearer to those of a whole prefill. It
	// costs writing them.
	KeepFresh bool
}

// Validate reports what is wrong with options.
func (o PlanOptions) Validate() error {
	switch {
	case o.Layers < 1 || o.Layers > maxLayers:
		return invalid("%d layers; 1 to %d are possible", o.Layers, maxLayers)
	case o.Tokens < 1 || o.Tokens > maxTokens:
		return invalid("a prompt of %d tokens; 1 to %d are possible", o.Tokens, maxTokens)
	case o.Prefix < 0 || o.Prefix >= o.Tokens || o.Suffix < 0 || o.Suffix > o.Tokens:
		return invalid("a prefix of %d and a suffix of %d tokens in a prompt of %d", o.Prefix, o.Suffix, o.Tokens)
	}
	at := 0
	for _, m := range o.Cover {
		if m.Start < at || m.End <= m.Start || m.End > o.Tokens {
			return invalid("a chunk from %d to %d behind one that ends at %d, in a prompt of %d tokens",
				m.Start, m.End, at, o.Tokens)
		}
		at = m.End
	}
	for _, g := range Gaps(o.Cover, o.Tokens) {
		if g.Start < o.Prefix {
			return invalid("the tokens %d to %d are of the prefix, and no chunk has them",
				g.Start, min(g.End, o.Prefix)-1)
		}
	}
	for i, c := range o.Checks {
		if c.Layer < 0 || c.Layer >= o.Layers || i > 0 && c.Layer <= o.Checks[i-1].Layer {
			return invalid("a check at layer %d of %d, behind %d others", c.Layer, o.Layers, i)
		}
		if err := c.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// A Plan says, layer by layer, what an engine computes of a prompt. One goroutine uses it at a time.
//
// For each layer, from 0 on, the engine asks for its [Step] and computes queries, keys and values of its
// Rows. If the step has a Check, the engine compares keys or values with the old ones ([Deviation]) and calls
// [Plan.Select]. It writes what the step's Write has over what the KV of the prompt had, and attends with the
// queries of Attend to the KV of all tokens up to their own. Only they go through the rest of the layer, and
// are the Rows of the next one.
type Plan struct {
	options  PlanOptions
	rows     []int
	always   []bool
	layer    int  // of the next Step
	selected bool // the Step of the layer in front needs no Select, or has it
}

// A Step is what is computed in a layer. Its slices are valid, and must not be changed, until the next call
// of the plan. Rows are numbers of tokens, which are their positions, in rising order.
type Step struct {
	Layer  int
	Check  bool
	Rows   []int // whose hidden states are there, and whose queries, keys and values are computed
	Write  []int // whose keys and values are written; with Check it is known after Select
	Attend []int // whose queries attend, causally: the one of row p to the tokens 0 to p; with Check after Select
}

// NewPlan returns a plan. It keeps no reference to the options' slices.
func NewPlan(o PlanOptions) (*Plan, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Checks = slices.Clone(o.Checks)
	p := &Plan{always: make([]bool, o.Tokens), selected: true}
	for _, g := range Gaps(o.Cover, o.Tokens) {
		for i := g.Start; i < g.End; i++ {
			p.always[i] = true
		}
	}
	o.Cover = nil
	for i := o.Tokens - max(o.Suffix, 1); i < o.Tokens; i++ {
		p.always[i] = true
	}
	for i := o.Prefix; i < o.Tokens; i++ {
		p.rows = append(p.rows, i)
	}
	p.options = o
	return p, nil
}

// Step returns what is computed in the next layer. It is an fs.ErrInvalid behind the last one, and where the
// layer in front needs Select first.
func (p *Plan) Step() (Step, error) {
	if !p.selected || p.layer == p.options.Layers {
		return Step{}, invalid("no step for layer %d of %d: it is the end, or Select is to be called",
			p.layer, p.options.Layers)
	}
	s := Step{Layer: p.layer, Rows: p.rows, Write: p.rows, Attend: p.rows}
	if p.check() != nil {
		s.Check, s.Write, s.Attend, p.selected = true, nil, nil, false
	} else {
		p.layer++
	}
	return s, nil
}

func (p *Plan) check() *Check {
	for i := range p.options.Checks {
		if p.options.Checks[i].Layer == p.layer {
			return &p.options.Checks[i]
		}
	}
	return nil
}

// Select ends the step of a check, with the deviations of its Rows, and returns it with the rest.
func (p *Plan) Select(deviations []float64) (Step, error) {
	if p.selected {
		return Step{}, invalid("layer %d has nothing to select", p.layer)
	}
	rows, err := p.check().Select(p.options.Tokens, p.rows, deviations, func(row int) bool { return p.always[row] })
	if err != nil {
		return Step{}, err
	}
	s := Step{Layer: p.layer, Check: true, Rows: p.rows, Write: rows, Attend: rows}
	if p.options.KeepFresh {
		s.Write = s.Rows
	}
	p.rows, p.selected = rows, true
	p.layer++
	return s, nil
}

// Exact returns how many tokens from the first on have the KV of a whole prefill: those of the first chunk,
// if it begins the prompt, was computed at position 0 and nothing was in front of it.
func Exact(cover []Match) int {
	if len(cover) > 0 && cover[0].Start == 0 {
		return cover[0].End
	}
	return 0
}
