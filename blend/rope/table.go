package rope

import "math"

// A Table has the frequencies of a model.
type Table struct {
	config      Config
	frequencies []float64 // radians for each position, by pair
	factor      float64   // by which At scales what it rotates: 1, but for YaRN
}

// New returns the table of a configuration.
func New(c Config) (*Table, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.defaults()
	t := &Table{config: c, factor: 1}
	s, dim, base := c.Scaling, float64(c.RotaryDim), c.Theta
	switch s.Kind {
	case NTK:
		base *= math.Pow(s.Factor, dim/(dim-2))
	case Dynamic:
		longest := float64(c.MaxPositions) / float64(s.OriginalPositions)
		base *= math.Pow(s.Factor*longest-(s.Factor-1), dim/(dim-2))
	}
	for i := range c.RotaryDim / 2 {
		t.frequencies = append(t.frequencies, math.Pow(base, -float64(2*i)/dim))
	}
	switch s.Kind {
	case Linear:
		for i := range t.frequencies {
			t.frequencies[i] /= s.Factor
		}
	case YaRN:
		t.yarn()
	case Llama3:
		t.llama3()
	}
	return t, nil
}

// yarn blends between stretched frequencies, for pairs that turn less than BetaSlow times within the original
// positions, and those as they are, for pairs that turn more than BetaFast times.
func (t *Table) yarn() {
	s, dim := t.config.Scaling, float64(t.config.RotaryDim)
	pair := func(turns float64) float64 {
		return dim * math.Log(float64(s.OriginalPositions)/(turns*2*math.Pi)) / (2 * math.Log(t.config.Theta))
	}
	low, high := pair(s.BetaFast), pair(s.BetaSlow)
	if !s.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	for i, f := range t.frequencies {
		stretched := min(max((float64(i)-low)/(high-low), 0), 1)
		t.frequencies[i] = f/s.Factor*stretched + f*(1-stretched)
	}
	t.factor = s.AttentionFactor
}

// llama3 stretches pairs of long waves, leaves those of short ones, and blends between them.
func (t *Table) llama3() {
	s := t.config.Scaling
	for i, f := range t.frequencies {
		waves := float64(s.OriginalPositions) * f / (2 * math.Pi) // within the original positions
		kept := min(max((waves-s.LowFrequency)/(s.HighFrequency-s.LowFrequency), 0), 1)
		t.frequencies[i] = f/s.Factor*(1-kept) + f*kept
	}
}

// Config returns the configuration of the table, with its defaults filled in.
func (t *Table) Config() Config { return t.config }

// Shift returns the rotation that moves keys by a number of positions, which may be negative. It has no
// factor.
//
// See docs/decisions.md, "A shift has no factor, and all loops of a rotation have the same bits".
func (t *Table) Shift(by int) Rotation { return t.rotation(by, 1) }

// At returns the rotation from keys or queries without a position to those at a position.
func (t *Table) At(position int) Rotation { return t.rotation(position, t.factor) }

func (t *Table) rotation(by int, factor float64) Rotation {
	half := len(t.frequencies)
	both := make([]float32, 2*half)
	r := Rotation{
		dim: t.config.HeadDim, pairing: t.config.Pairing, cos: both[:half:half], sin: both[half:],
		none: by == 0 && factor == 1,
	}
	for i, f := range t.frequencies {
		// Angles of millions of radians keep some nine digits in a float64; in a float32 they would keep one.
		sin, cos := math.Sincos(float64(by) * f)
		r.cos[i], r.sin[i] = float32(cos*factor), float32(sin*factor)
		if r.pairing == GPTJ {
			r.first = append(r.first, r.cos[i], r.cos[i])
			r.second = append(r.second, -r.sin[i], r.sin[i])
		}
	}
	if r.pairing == NeoX && half%16 == 0 {
		for i := range half {
			pair := i&^15 | i&7<<1 | i>>3&1
			r.first, r.second = append(r.first, r.cos[pair]), append(r.second, r.sin[pair])
		}
	}
	return r
}
