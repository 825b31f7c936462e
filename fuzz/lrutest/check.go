package lrutest

import (
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/internal/draw"
	"github.com/ringcache/ringcache/fuzz/model"
)

// Options configure the tests. The zero value tests everything.
type Options struct {
	// Without names invariants that are not promised, for example "same-as-vllm".
	Without []string
	// Release is the vLLM to be like, the newest known if "". A standalone cache is the same in
	// all; mirrored pairs are not.
	Release string
	// GrowAnew is how a cache makes room for a value that replaces a smaller one: as if the
	// smaller one stayed beside it, as cachetools does before its version 8.
	GrowAnew bool
	// Capacity of all caches in bytes, various small ones if 0.
	Capacity float64
	// Seed of the first sequence, Ops operations in all (20000 if 0), Length of a sequence (100).
	Seed        uint64
	Ops, Length int
}

// seed repeats a failure of Check and CheckPair.
var seed = flag.Uint64("lrutest.seed", 0, "fuzz/lrutest: seed of the first random sequence")

func (o Options) search() fuzz.Search {
	s := fuzz.Search{Seed: o.Seed, Ops: o.Ops, Length: o.Length}
	if *seed != 0 {
		s.Seed = *seed
	}
	if s.Ops == 0 {
		s.Ops = 20000
	}
	if s.Length == 0 {
		s.Length = 100
	}
	return s
}

func (o Options) release() (model.Release, error) {
	if o.Release == "" {
		return model.Lookup("0.33.0")
	}
	return model.Lookup(o.Release)
}

// active are the invariants that Options leaves. A name that there is not is an error.
func active[S any](all []fuzz.Invariant[S], without []string) ([]fuzz.Invariant[S], error) {
	for _, name := range without {
		if !slices.ContainsFunc(all, func(i fuzz.Invariant[S]) bool { return i.Name == name }) {
			return nil, fmt.Errorf("lrutest: there is no invariant %q", name)
		}
	}
	return slices.DeleteFunc(all, func(i fuzz.Invariant[S]) bool { return slices.Contains(without, i.Name) }), nil
}

// failed returns the failure of the first invariant that does not hold.
func failed[S any](invariants []fuzz.Invariant[S], s S, ops []fuzz.Op) *fuzz.Failure {
	for _, i := range invariants {
		if err := i.Holds(s); err != nil {
			return &fuzz.Failure{Invariant: i.Name, Why: i.Why, Err: err, Ops: ops}
		}
	}
	return nil
}

// recovered turns a panic of the system at operation n into a failure. It has to be deferred itself.
func recovered(f **fuzz.Failure, ops []fuzz.Op, n *int) {
	if p := recover(); p != nil {
		*f = &fuzz.Failure{Invariant: "panic", Err: fmt.Errorf("%v\n%s", p, debug.Stack()), Ops: ops[:min(*n+1, len(ops))]}
	}
}

// subject is a cache and all that is needed to test it.
type subject struct {
	create     func(capacity float64) Cache
	options    Options
	release    model.Release
	invariants []fuzz.Invariant[Step]
}

func newSubject(create func(capacity float64) Cache, o Options) (*subject, error) {
	r, errRelease := o.release()
	invariants, err := active(Invariants(), o.Without)
	return &subject{create, o, r, invariants}, errors.Join(errRelease, err)
}

func (s *subject) generator() fuzz.Generator {
	return generate.LRU(generate.LRUOptions{
		Capacity: s.options.Capacity, GrowAnew: []bool{s.options.GrowAnew}, Without: without(s.create(1)),
	})
}

// test performs a sequence, and returns what goes wrong first.
func (s *subject) test(ops []fuzz.Op) *fuzz.Failure { return s.testFrom(0, ops) }

// testFrom is test, and checks the operations from an index on.
func (s *subject) testFrom(first int, ops []fuzz.Op) (f *fuzz.Failure) {
	done := 0
	defer recovered(&f, ops, &done)
	m := &machine{create: s.create}
	var vllm *model.LRU
	for i, op := range ops {
		done = i
		switch {
		case op.Name == "lru.new":
			vllm = model.NewLRU(s.release, model.CacheOptions{})
		case op.Name == "lru.close", vllm == nil, number(op.Args["size"]) < 0:
			continue // a new cache follows; minimizing left the first one out; no value has such a size
		}
		step, err := m.perform(i, op, i >= first)
		if err != nil {
			return &fuzz.Failure{Invariant: "broken", Err: err, Ops: ops[:i+1]}
		}
		want, err := vllm.Do([]fuzz.Op{op})
		if err == nil && i >= first {
			var state []fuzz.Reply
			state, err = vllm.Do([]fuzz.Op{{Name: "lru.state", Args: map[string]any{"lru": "l"}}})
			step.Want, step.WantAfter = want[0], state[0].Fields
		}
		if err != nil {
			return &fuzz.Failure{Invariant: "broken", Err: err, Ops: ops[:i+1]}
		}
		if i < first {
			continue
		}
		if f := failed(s.invariants, step, ops[:i+1]); f != nil {
			return f
		}
	}
	return nil
}

// Check performs random operations on caches that create makes, and fails with the smallest
// sequence that breaks an invariant.
func Check(t testing.TB, create func(capacity float64) Cache, o Options) {
	t.Helper()
	s, err := newSubject(create, o)
	if err != nil {
		t.Fatal(err)
	}
	find(t, o, s.generator(), s.test)
}

func find(t testing.TB, o Options, generator fuzz.Generator, test func([]fuzz.Op) *fuzz.Failure) {
	t.Helper()
	f, done := fuzz.Find(o.search(), generator, test)
	if f != nil {
		f.Repeat = fmt.Sprintf("go test -run '^%s$' -lrutest.seed=%d", t.Name(), f.Seed)
		t.Fatal(f)
	}
	t.Logf("%d operations from seed %d", done, o.search().Seed)
}

// Fuzz is Check with the bytes of Go's fuzzer.
func Fuzz(f *testing.F, create func(capacity float64) Cache, o Options) {
	f.Helper()
	s, err := newSubject(create, o)
	if err != nil {
		f.Fatal(err)
	}
	fuzzBytes(f, s.generator(), s.test)
}

func fuzzBytes(f *testing.F, generator fuzz.Generator, test func([]fuzz.Op) *fuzz.Failure) {
	f.Helper()
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		ops := generator(fuzz.FromBytes(data), 1000)
		if failure := test(ops); failure != nil {
			t.Fatal(fuzz.Shrink(ops, failure, test))
		}
	})
}

// Machine is Check with the choices of rapid, for rapid.Check.
func Machine(create func(capacity float64) Cache, o Options) func(*rapid.T) {
	return func(t *rapid.T) {
		s, err := newSubject(create, o)
		if err != nil {
			t.Fatal(err)
		}
		ops := s.generator()(draw.Choices(t), rapid.IntRange(1, 60).Draw(t, "length"))
		if f := s.test(ops); f != nil {
			f.Found = len(ops)
			t.Fatal(f)
		}
	}
}
