package ringtest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/model"
)

// Options configure a test. The zero value checks what holds for any correct ring.
type Options struct {
	// FIFO switches the invariant fifo on.
	FIFO bool
	// Placement switches the invariant placement on: addresses, ids, refusals and positions are those of
	// this release of vLLM, "0.11.0" to "0.33.0". It implies FIFO.
	Placement string
	// StaleAtOnce switches the invariant stale-at-once on.
	StaleAtOnce bool
	// Off names invariants that are not checked.
	Off []string
	// Also are invariants of your own, checked after all others.
	Also []fuzz.Invariant[*Step]

	// Size is that of all rings in bytes. If it is 0, [Check], [Fuzz] and [Machine] draw one, most
	// below 200; [Exhaust] and [Crash] take 40 and 120.
	Size int
	// Seed is that of the first sequence, or RINGTEST_SEED from the environment. Check and Crash
	// perform at least Ops operations, or RINGTEST_OPS: 50000 and 5000 if 0.
	Seed uint64
	Ops  int
	// Length is that of a sequence, 200 if 0. Exhaust performs histories up to Depth operations, 6
	// if 0, with payloads of Payloads bytes: four that meet the borders of the ring if nil.
	Length, Depth int
	Payloads      []int
}

// plan is what a test does: Options with everything filled in.
type plan struct {
	Options
	new        New
	invariants []fuzz.Invariant[*Step]
	release    model.Release
	largest    map[int]int // payload that an empty ring takes, by the ring's size
	rings      int         // that New made
}

func newPlan(n New, o Options) (*plan, error) {
	p := &plan{Options: o, new: n, largest: map[int]int{}}
	if o.Placement != "" {
		p.FIFO = true
		var err error
		if p.release, err = model.Lookup(o.Placement); err != nil {
			return nil, fmt.Errorf("the option Placement: %w", err)
		}
	}
	on := map[string]bool{fifo.Name: p.FIFO, placement.Name: o.Placement != "", staleAtOnce.Name: o.StaleAtOnce}
	names := []string{}
	for _, inv := range Invariants() {
		names = append(names, inv.Name)
		optional, there := on[inv.Name]
		if slices.Contains(o.Off, inv.Name) || there && !optional {
			continue
		}
		p.invariants = append(p.invariants, inv)
	}
	for _, name := range o.Off {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("the option Off: there is no invariant %q, but %q", name, names)
		}
	}
	p.invariants = append(p.invariants, o.Also...)
	return p, nil
}

func mustPlan(t testing.TB, n New, o Options) *plan {
	t.Helper()
	p, err := newPlan(n, o)
	if err != nil {
		t.Fatalf("ringtest: %v", err)
	}
	return p
}

// search returns what to search, in which Ops are at least ops unless the options have another
// number. The environment comes first.
func (p *plan) search(ops int) (fuzz.Search, error) {
	s := fuzz.Search{Seed: p.Seed, Ops: p.Ops, Length: p.Length}
	if s.Ops == 0 {
		s.Ops = ops
	}
	for name, set := range map[string]func(uint64){
		"RINGTEST_SEED": func(n uint64) { s.Seed = n },
		"RINGTEST_OPS":  func(n uint64) { s.Ops = int(n) },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				return s, fmt.Errorf("%s: %w", name, err)
			}
			set(n)
		}
	}
	return s, nil
}

func (p *plan) generator() fuzz.Generator {
	return generate.Ring(generate.RingOptions{
		Size: p.Size, Generation: p.Placement, AnyOrder: !p.FIFO, NoLimits: true, NoHeaders: true,
	})
}

// repeat returns the command that shows the failure of a seed again.
func repeat(t testing.TB, seed uint64) string {
	return fmt.Sprintf("RINGTEST_SEED=%d go test -run '^%s$' .", seed, regexp.QuoteMeta(t.Name()))
}
