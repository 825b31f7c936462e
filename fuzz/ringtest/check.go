package ringtest

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
	"github.com/ringcache/ringcache/fuzz/ringrules"
)

// Check performs random sequences and fails the test for the first that breaks an invariant. It
// prints that sequence minimized, with the seed and the command that repeat it.
func Check(t testing.TB, n New, o Options) {
	t.Helper()
	failure, done, err := Find(n, o)
	harness.Report(t, "ringtest", fmt.Sprintf("%d operations", done), failure, err)
}

// Find is [Check] for those who want to go on with what it finds, such as a test that plants
// defects: it returns the failure, or nil, and the number of operations that it performed until then,
// without those of minimizing. The error is that of the options, or of a New that made no ring.
func Find(n New, o Options) (failure *fuzz.Failure, done int, err error) {
	p, err := ringrules.NewPlan(n, o)
	if err != nil {
		return nil, 0, err
	}
	failure, done, err = subject(p, 50_000).Find()
	if p.Rings() == 0 && failure == nil && err == nil {
		err = errNoRing
	}
	return failure, done, err
}

var errNoRing = errors.New("no ring was made: New returned nil for every size")

// Replay performs operations of the agent's protocol on one ring at a time: those that a failure
// printed, or that you wrote. A ring.free has no limit here.
func Replay(t testing.TB, n New, o Options, lines string) {
	t.Helper()
	ops, err := fuzz.Parse(lines)
	if err != nil {
		t.Fatalf("ringtest: %v", err)
	}
	for _, op := range ops {
		if op.Args["ring"] != ops[0].Args["ring"] || op.Args["limit"] != nil {
			t.Fatalf("ringtest: %s: this is for one ring, and frees without a limit", op.Line())
		}
	}
	newSubject(n, o).Replay(t, lines)
}

// Fuzz lets Go's fuzzer choose the operations. It begins with sequences that reach the borders.
func Fuzz(f *testing.F, n New, o Options) {
	f.Helper()
	newSubject(n, o).Fuzz(f)
}

// Machine returns a property for rapid.Check, or for rapid.MakeFuzz: rapid chooses the operations,
// up to Options.Length of them, or 100, and minimizes.
func Machine(n New, o Options) func(*rapid.T) { return newSubject(n, o).Machine(o.Length) }

// Bytes returns the input of a target of [Fuzz] with the same options for the sequence that a seed
// makes, for a corpus.
func Bytes(n New, o Options, seed uint64, length int) ([]byte, error) {
	return newSubject(n, o).Bytes(seed, length)
}

func newSubject(n New, o Options) harness.Subject {
	p, err := ringrules.NewPlan(n, o)
	if err != nil {
		return harness.Subject{Package: "ringtest", Err: err}
	}
	return subject(p, 0)
}

// subject is the plan with at least so many operations unless the options have another number.
func subject(p *ringrules.Plan, ops int) harness.Subject {
	s := harness.Subject{
		Package: "ringtest", Test: p.Run,
		Search: fuzz.Search{Seed: p.Seed, Ops: p.Ops, Length: p.Length},
		Operations: []string{"ring.new", "ring.alloc", "ring.free", "ring.clear", "ring.header", "ring.state",
			"ring.close"},
		Generate: p.Generate(),
	}
	if s.Search.Ops == 0 {
		s.Search.Ops = ops
	}
	return s
}

func mustPlan(t testing.TB, n New, o Options) *ringrules.Plan {
	t.Helper()
	p, err := ringrules.NewPlan(n, o)
	if err != nil {
		t.Fatalf("ringtest: %v", err)
	}
	return p
}
