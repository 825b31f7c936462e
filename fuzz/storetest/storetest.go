package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
	"github.com/ringcache/ringcache/fuzz/internal/draw"
)

// Options configures a test. The zero value is right for most stores.
type Options struct {
	// Ops is how many operations Check performs at least, 20000 if 0; Length is that of a
	// sequence, 100 if 0, or of a history of Exhaust; Seed is that of the first one.
	Ops, Length int
	Seed        uint64
	// Kind returns the kind of an error that the store returned: "exists", "too_large", "full",
	// "not_found", and any other for others. If nil, those of this package are recognized.
	Kind func(error) string
	// Without are the names of invariants that the store need not have; see [Invariants].
	Without []string
	// Rereads: readers may get a handle again, so that only a fence ends what was aborted.
	Rereads bool
	// FIFO is a release of vLLM, "0.33.0". The store has to do exactly what vLLM's does: handles,
	// counts, kinds of errors, and what stays. Values are stored as Python's pickle of bytes.
	FIFO string
}

func (o Options) generator() fuzz.Generator {
	g := generate.StoreOptions{Policy: "pool", Segment: "s", Lock: "lock", BytesOnly: true, Unlimited: true}
	if o.FIFO != "" {
		g.Policy, g.Generation = "fifo", o.FIFO
	}
	return generate.Store(g)
}

func (o Options) tester(n New) func([]fuzz.Op) *fuzz.Failure {
	if o.FIFO != "" {
		return func(ops []fuzz.Op) *fuzz.Failure { return testFIFO(n, o, ops) }
	}
	return newRunner(n, o).test
}

// Check tests a store with random sequences.
func Check(t *testing.T, n New, o Options) {
	t.Helper()
	if f := Find(n, o); f != nil {
		f.Repeat = fmt.Sprintf("go test -run '^%s$'", t.Name())
		t.Fatal(f)
	}
}

// Find is Check that returns the failure, nil if there is none.
func Find(n New, o Options) *fuzz.Failure {
	if o.Ops == 0 {
		o.Ops = 20000
	}
	if o.Length == 0 {
		o.Length = 100
	}
	f, _ := fuzz.Find(fuzz.Search{Seed: o.Seed, Ops: o.Ops, Length: o.Length}, o.generator(), o.tester(n))
	return f
}

// Fuzz tests a store with sequences that Go's fuzzer makes.
func Fuzz(f *testing.F, n New, o Options) {
	next, test := o.generator(), o.tester(n)
	for seed := range byte(4) {
		data := make([]byte, 500)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ops := next(fuzz.FromBytes(data), 300)
		if failure := test(ops); failure != nil {
			t.Fatal(fuzz.Shrink(ops, failure, test))
		}
	})
}

// Machine returns a property for rapid.Check, which makes and minimizes the sequences.
func Machine(n New, o Options) func(*rapid.T) {
	next, test := o.generator(), o.tester(n)
	length := o.Length
	if length == 0 {
		length = 100
	}
	return func(t *rapid.T) {
		if f := test(next(draw.Choices(t), length)); f != nil {
			f.Found = len(f.Ops)
			t.Fatal(f)
		}
	}
}
