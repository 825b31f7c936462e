package storetest

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
	"github.com/ringcache/ringcache/fuzz/model"
)

// Options configure a test. The zero value is right for most stores.
type Options struct {
	// Without names invariants that are not checked; see [Invariants].
	Without []string
	// Release is a release of vLLM, "0.11.0" to "0.33.0". The store has to do exactly what vLLM's
	// does: handles, counts, kinds of errors, and what stays. That is the invariant same-as-vllm,
	// and takes the place of all others. Values are stored as Python's pickle of bytes.
	Release string
	// Rereads: readers may get a handle again, so that only a fence ends what was aborted.
	Rereads bool
	// Kind returns the kind of an error that the store returned: "exists", "too_large", "full",
	// "not_found", and any other for others. If nil, those of this package are recognized.
	Kind func(error) string

	// Seed is that of the first sequence. Check performs at least Ops operations, 20000 if 0.
	// FUZZ_SEED and FUZZ_OPS of the environment come first.
	Seed uint64
	Ops  int
	// Length is that of a sequence, 100 if 0.
	Length int
	// Depth is how many operations the histories of Exhaust have, 4 if 0.
	Depth int
}

// plan is what a test does: Options with everything filled in.
type plan struct {
	Options
	new        New
	invariants []fuzz.Invariant[Step]
	release    model.Release  // if the option Release is set
	largest    map[[3]int]int // value that fits into an empty store
}

func newPlan(n New, o Options) (*plan, error) {
	p := &plan{Options: o, new: n, largest: map[[3]int]int{}}
	if p.Kind == nil {
		p.Kind = defaultKind
	}
	if p.Depth == 0 {
		p.Depth = 4
	}
	var err error
	if o.Release != "" {
		if p.release, err = model.Lookup(o.Release); err != nil {
			return nil, fmt.Errorf("the option Release: %w", err)
		}
	}
	p.invariants, err = rules.Active(Invariants(), o.Without)
	return p, err
}

func (p *plan) generator() fuzz.Generator {
	g := generate.StoreOptions{Policy: "pool", Segment: "s", Lock: "lock", BytesOnly: true, Unlimited: true,
		NoCrash: true}
	if s, err := p.new(Config{Size: 1024, MaxObject: 512, Readers: 1, Secret: make([]byte, 32)}); err == nil {
		_, adopts := s.(Adopter)
		g.NoCrash = !adopts
		_ = s.Close() // closing is what sequences test
	}
	if p.Release != "" {
		g.Policy, g.Generation = "fifo", p.Release
	}
	return generate.Store(g)
}

// operations are those that sequences contain.
var operations = []string{
	"store.create", "store.open", "store.put", "store.lookup", "store.get", "store.touch", "store.release_touches",
	"store.begin",
	"store.commit", "store.rollback", "store.finish", "store.abort", "store.evict", "store.free_unused",
	"store.clear", "store.fence",
	"store.reset_readers", "store.adopt", "store.state", "store.close",
}

func newSubject(n New, o Options) harness.Subject {
	p, err := newPlan(n, o)
	if err != nil {
		return harness.Subject{Package: "storetest", Err: err}
	}
	s := harness.Subject{
		Package: "storetest", Generate: p.generator(), Test: p.test, Operations: operations,
		Search: fuzz.Search{Seed: o.Seed, Ops: o.Ops, Length: o.Length},
	}
	if o.Ops == 0 {
		s.Search.Ops = 20_000
	}
	if o.Length == 0 {
		s.Search.Length = 100
	}
	return s
}

// test performs a sequence and returns the first failure, nil if there is none.
func (p *plan) test(ops []fuzz.Op) (failure *fuzz.Failure) {
	s := &system{new: p.new, kind: p.Kind}
	var done []fuzz.Op
	performed := func() []fuzz.Op { return slices.Clone(done) }
	defer func() {
		if err := s.close(); err != nil && failure == nil {
			failure = &fuzz.Failure{Invariant: "broken", Err: err, Ops: done}
		}
	}()
	defer rules.Recover(&failure, performed)
	if p.Release != "" {
		failure = p.testRelease(s, ops, &done)
	} else {
		failure = p.testPromises(s, ops, &done)
	}
	if failure != nil {
		failure.Ops = performed()
	}
	return failure
}
