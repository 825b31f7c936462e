package rope

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
)

// Pairing says which elements of a head are turned together.
type Pairing int

// Pairings. A configuration does not say which one a model has; its code does.
const (
	NeoX Pairing = iota // element i and i + half of the rotated ones: Llama, Mistral, Qwen
	GPTJ                // elements 2i and 2i + 1: GPT-J, GLM, Cohere
)

// Kinds of scaling.
const (
	Linear  = "linear"  // all frequencies divided by the factor
	NTK     = "ntk"     // a larger base for the factor alpha, whatever the length (vLLM's dynamic with alpha)
	Dynamic = "dynamic" // a larger base for the longest length (as vLLM; in transformers for that of the prompt)
	YaRN    = "yarn"
	Llama3  = "llama3"
)

// A Config is what decides the rotations of a model.
type Config struct {
	HeadDim      int     // elements of a head
	RotaryDim    int     // how many of them, from the first on, are rotated; 0 is all
	Theta        float64 // the base; 0 is 10000
	MaxPositions int     // for Dynamic
	Pairing      Pairing
	Scaling      Scaling
}

// A Scaling stretches the positions that a model was trained with. Its zero value is none.
type Scaling struct {
	Kind              string
	Factor            float64
	OriginalPositions int // for Dynamic, YaRN and Llama3

	// Of YaRN. Zeros are 32, 1, and the factor 0.1 ln(Factor) + 1.
	BetaFast, BetaSlow, AttentionFactor float64
	MScale, MScaleAllDim                float64
	NoTruncate                          bool

	// Of Llama3.
	LowFrequency, HighFrequency float64
}

const (
	maxHeadDim   = 1 << 12
	maxPositions = 1 << 30
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("rope: "+format+": %w", append(args, fs.ErrInvalid)...)
}

func (c Config) defaults() Config {
	if c.RotaryDim == 0 {
		c.RotaryDim = c.HeadDim
	}
	if c.Theta == 0 {
		c.Theta = 10000
	}
	s := &c.Scaling
	if s.Kind == YaRN {
		if s.BetaFast == 0 {
			s.BetaFast = 32
		}
		if s.BetaSlow == 0 {
			s.BetaSlow = 1
		}
		if s.AttentionFactor == 0 {
			s.AttentionFactor = yarnFactor(s.Factor, 1)
			if s.MScale != 0 && s.MScaleAllDim != 0 {
				s.AttentionFactor = yarnFactor(s.Factor, s.MScale) / yarnFactor(s.Factor, s.MScaleAllDim)
			}
		}
	}
	return c
}

func yarnFactor(scale, m float64) float64 {
	if scale <= 1 {
		return 1
	}
	return 0.1*m*math.Log(scale) + 1
}

// Validate reports what is wrong with a configuration.
func (c Config) Validate() error {
	c = c.defaults()
	s := c.Scaling
	switch {
	case c.HeadDim < 2 || c.HeadDim > maxHeadDim:
		return invalid("a head of %d elements; 2 to %d are possible", c.HeadDim, maxHeadDim)
	case c.RotaryDim < 2 || c.RotaryDim > c.HeadDim || c.RotaryDim%2 != 0:
		return invalid("%d rotated elements of %d; they are pairs", c.RotaryDim, c.HeadDim)
	case !(c.Theta > 1) || math.IsInf(c.Theta, 0):
		return invalid("a base of %v; it is more than 1", c.Theta)
	case c.MaxPositions < 0 || c.MaxPositions > maxPositions ||
		s.OriginalPositions < 0 || s.OriginalPositions > maxPositions:
		return invalid("%d positions, and %d originally; 0 to %d are possible",
			c.MaxPositions, s.OriginalPositions, maxPositions)
	case c.Pairing != NeoX && c.Pairing != GPTJ:
		return invalid("no pairing %d", c.Pairing)
	case s.Kind == "":
		return nil
	case !(s.Factor >= 1) || math.IsInf(s.Factor, 0):
		return invalid("scaling %q by %v; the factor is 1 or more", s.Kind, s.Factor)
	}
	switch s.Kind {
	case Linear:
		return nil
	case NTK, Dynamic:
		if c.RotaryDim == 2 {
			return invalid("scaling %q needs more than 2 rotated elements", s.Kind)
		}
		if s.Kind == Dynamic && (s.OriginalPositions == 0 || c.MaxPositions < s.OriginalPositions) {
			return invalid("scaling %q from %d to %d positions", s.Kind, s.OriginalPositions, c.MaxPositions)
		}
		return nil
	case YaRN:
		for _, x := range []float64{s.BetaFast, s.BetaSlow, s.AttentionFactor} {
			// What is far from 1 has no meaning, and overflows where it is computed with.
			if !(x >= 1e-6 && x <= 1e6) {
				return invalid("scaling %q with a beta or an attention factor of %v", s.Kind, x)
			}
		}
		if s.OriginalPositions == 0 || s.BetaFast < s.BetaSlow {
			return invalid("scaling %q of %d positions between the betas %v and %v",
				s.Kind, s.OriginalPositions, s.BetaFast, s.BetaSlow)
		}
		return nil
	case Llama3:
		if s.OriginalPositions == 0 || !(s.LowFrequency > 0) || !(s.HighFrequency > s.LowFrequency) ||
			math.IsInf(s.HighFrequency, 0) {
			return invalid("scaling %q of %d positions between the factors %v and %v",
				s.Kind, s.OriginalPositions, s.LowFrequency, s.HighFrequency)
		}
		return nil
	}
	return invalid("scaling %q is not known", s.Kind)
}

// scalingJSON is rope_scaling or rope_parameters of a config.json.
type scalingJSON struct {
	Type              string   `json:"type"`
	RopeType          string   `json:"rope_type"`
	Theta             float64  `json:"rope_theta"`
	Partial           *float64 `json:"partial_rotary_factor"`
	Factor            float64  `json:"factor"`
	Alpha             float64  `json:"alpha"`
	OriginalPositions int      `json:"original_max_position_embeddings"`
	TrainedPositions  int      `json:"max_trained_positions"`
	BetaFast          float64  `json:"beta_fast"`
	BetaSlow          float64  `json:"beta_slow"`
	AttentionFactor   float64  `json:"attention_factor"`
	MScale            float64  `json:"mscale"`
	MScaleAllDim      float64  `json:"mscale_all_dim"`
	Truncate          *bool    `json:"truncate"`
	LowFrequency      float64  `json:"low_freq_factor"`
	HighFrequency     float64  `json:"high_freq_factor"`
}

// modelJSON is a config.json.
type modelJSON struct {
	HeadDim           int             `json:"head_dim"`
	Hidden            int             `json:"hidden_size"`
	Heads             int             `json:"num_attention_heads"`
	Theta             float64         `json:"rope_theta"`
	ThetaNeoX         float64         `json:"rotary_emb_base"`
	Partial           *float64        `json:"partial_rotary_factor"`
	PartialNeoX       *float64        `json:"rotary_pct"`
	MaxPositions      int             `json:"max_position_embeddings"`
	OriginalPositions int             `json:"original_max_position_embeddings"`
	Scaling           json.RawMessage `json:"rope_scaling"`
	Parameters        json.RawMessage `json:"rope_parameters"`
}

// refused are fields that change rotations and are not understood: other rotations in some layers, none in
// some, positions of several dimensions, other elements, other frequencies.
var refused = []string{
	"rope_local_base_freq", "no_rope_layers", "mrope_section", "xdrope_section", "rotary_dim", "rope_dim",
	"qk_rope_head_dim", "dual_chunk_attention_config", "use_fope", "alibi",
}

// read reads an object, but not one with fields that change rotations and are not understood.
func read(text []byte, to any) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return invalid("no configuration of a model: %v", err)
	}
	for _, name := range refused {
		switch string(fields[name]) {
		case "", "null", "false", "[]":
		default:
			return invalid("%s is not supported", name)
		}
	}
	if err := json.Unmarshal(text, to); err != nil {
		return invalid("no configuration of a model: %v", err)
	}
	return nil
}

// ParseConfig reads what a model's config.json says, in the spelling of transformers 4 (rope_theta,
// rope_scaling) or 5 (rope_parameters). It does not say the pairing: that of the result is NeoX.
func ParseConfig(text []byte) (Config, error) {
	var m modelJSON
	if err := read(text, &m); err != nil {
		return Config{}, err
	}
	c := Config{HeadDim: m.HeadDim, Theta: cmp.Or(m.Theta, m.ThetaNeoX), MaxPositions: m.MaxPositions}
	if c.HeadDim == 0 && m.Heads > 0 {
		c.HeadDim = m.Hidden / m.Heads
	}
	part := m.Scaling
	if len(m.Parameters) > 0 && string(m.Parameters) != "null" {
		part = m.Parameters
	}
	var s scalingJSON
	if len(part) > 0 && string(part) != "null" {
		if err := checkFlat(part); err != nil {
			return Config{}, err
		}
		if err := read(part, &s); err != nil {
			return Config{}, err
		}
	}
	c.Theta = cmp.Or(s.Theta, c.Theta)
	if partial := cmp.Or(s.Partial, m.Partial, m.PartialNeoX); partial != nil && *partial != 1 {
		// A RotaryDim of 0 is all.
		if c.RotaryDim = int(*partial * float64(c.HeadDim)); !(*partial > 0 && *partial < 1) || c.RotaryDim == 0 {
			return Config{}, invalid("%v of %d elements are rotated", *partial, c.HeadDim)
		}
	}
	if kind := cmp.Or(s.RopeType, s.Type); kind != "" && kind != "default" {
		var err error
		if c.Scaling, err = s.scaling(kind, m); err != nil {
			return Config{}, err
		}
	}
	return c, c.Validate()
}

// checkFlat refuses parameters that are one object for each kind of layer.
func checkFlat(parameters []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(parameters, &fields); err != nil {
		return invalid("no parameters of rotations: %v", err)
	}
	for name, value := range fields {
		if value[0] == '{' {
			return invalid("rotations of their own for layers of the kind %q", name)
		}
	}
	return nil
}

func (s scalingJSON) scaling(kind string, m modelJSON) (Scaling, error) {
	if kind == NTK {
		// vLLM's kind of this name divides frequencies once more, and transformers has none.
		return Scaling{}, invalid("scaling %q of a configuration is not supported", kind)
	}
	out := Scaling{
		Kind: kind, Factor: s.Factor, OriginalPositions: cmp.Or(s.OriginalPositions, m.OriginalPositions),
		BetaFast: s.BetaFast, BetaSlow: s.BetaSlow,
		AttentionFactor: s.AttentionFactor, MScale: s.MScale, MScaleAllDim: s.MScaleAllDim,
		NoTruncate:   s.Truncate != nil && !*s.Truncate,
		LowFrequency: s.LowFrequency, HighFrequency: s.HighFrequency,
	}
	switch {
	case kind == Dynamic && s.Alpha != 0:
		out.Kind, out.Factor = NTK, s.Alpha
	case kind == Dynamic:
		out.OriginalPositions = s.TrainedPositions // vLLM reads this name alone
	case m.OriginalPositions != 0 && out.OriginalPositions != m.OriginalPositions:
		// Two answers to one question.
		return Scaling{}, invalid("scaling of %d original positions, and of %d in the same configuration",
			s.OriginalPositions, m.OriginalPositions)
	}
	out.OriginalPositions = cmp.Or(out.OriginalPositions, m.MaxPositions)
	return out, nil
}
