package ringrules

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
	"github.com/ringcache/ringcache/fuzz/model"
)

// Options configure a test. The zero value checks what holds for any correct ring.
type Options struct {
	// Without names invariants that are not checked; see [Invariants].
	Without []string
	// Release switches the invariant placement on: addresses, ids, refusals and positions are
	// exactly those of this release of vLLM, "0.11.0" to "0.33.0". It implies FIFO.
	Release string
	// FIFO switches the invariant fifo on.
	FIFO bool
	// StaleAtOnce switches the invariant stale-at-once on.
	StaleAtOnce bool
	// Also are invariants of your own, checked after all others.
	Also []fuzz.Invariant[*Step]

	// Size is that of all rings in bytes. If it is 0, a random sequence draws one, most below 200;
	// Exhaust and Crash of ringtest take 40 and 120.
	Size int
	// Seed is that of the first sequence. Check and Crash of ringtest perform at least Ops
	// operations, 50000 and 5000 if 0. FUZZ_SEED and FUZZ_OPS of the environment come first.
	Seed uint64
	Ops  int
	// Length is that of a sequence, 200 if 0.
	Length int
	// Depth is how many operations the histories of Exhaust have at most, 6 if 0.
	Depth int
	// Payloads are those of Exhaust in bytes: four that meet the borders of the ring if nil.
	Payloads []int
}

// Plan is what a test does: [Options] that were checked, and the rings that they are for. One goroutine
// uses it.
type Plan struct {
	Options
	new        New
	invariants []fuzz.Invariant[*Step]
	release    model.Release
	largest    map[int]int // payload that an empty ring takes, by the ring's size
	rings      int         // that New made
}

// NewPlan checks options. The error says which one is wrong.
func NewPlan(n New, o Options) (*Plan, error) {
	p := &Plan{Options: o, new: n, largest: map[int]int{}}
	if o.Release != "" {
		p.FIFO = true
		var err error
		if p.release, err = model.Lookup(o.Release); err != nil {
			return nil, fmt.Errorf("the option Release: %w", err)
		}
	}
	var err error
	if p.invariants, err = p.Checked(); err != nil {
		return nil, err
	}
	return p, nil
}

// Checked returns the invariants that a test with these options checks.
func (o Options) Checked() ([]fuzz.Invariant[*Step], error) {
	invariants, err := rules.Active(Invariants(), o.Without)
	if err != nil {
		return nil, err
	}
	on := map[string]bool{fifo.Name: o.FIFO || o.Release != "", placement.Name: o.Release != "", staleAtOnce.Name: o.StaleAtOnce}
	off := func(i invariant) bool { isOn, optional := on[i.Name]; return optional && !isOn }
	return slices.DeleteFunc(slices.Concat(invariants, o.Also), off), nil
}

// Rings returns how many rings were made, without those that only show how much a new one takes.
func (p *Plan) Rings() int { return p.rings }

// Generate returns the generator of sequences for these options.
func (p *Plan) Generate() fuzz.Generator {
	return generate.Ring(generate.RingOptions{
		Size: p.Size, Generation: p.Release, AnyOrder: !p.FIFO, NoLimits: true, NoHeaders: true,
	})
}
