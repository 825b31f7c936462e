// Package harness runs the tests of ringtest, storetest and lrutest: it searches, lets Go's fuzzer
// or rapid choose, replays and reports. What is particular to each of the three is a [Subject].
package harness

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
)

// Subject is what is tested, and how.
type Subject struct {
	Package  string // "ringtest"
	Generate fuzz.Generator
	// Test performs a sequence and returns what goes wrong first, nil if nothing does.
	Test func(ops []fuzz.Op) *fuzz.Failure
	// Search has the numbers of Options, and what the package takes for those that are 0.
	Search fuzz.Search
	// Operations are those that Replay takes. Sequences begin with the first one.
	Operations []string
	// Err is why there is nothing to test: the options are wrong.
	Err error
}

// Find searches by the seeds from Search.Seed on. FUZZ_SEED and FUZZ_OPS of the environment come
// first.
func (s Subject) Find() (failure *fuzz.Failure, done int, err error) {
	if s.Err != nil {
		return nil, 0, s.Err
	}
	search, err := fromEnvironment(s.Search)
	if err != nil {
		return nil, 0, err
	}
	failure, done = fuzz.Find(search, s.Generate, s.Test)
	return failure, done, nil
}

// Check reports what Find returns.
func (s Subject) Check(t testing.TB) {
	t.Helper()
	failure, done, err := s.Find()
	Report(t, s.Package, fmt.Sprintf("%d operations", done), failure, err)
}

// Most operations of a sequence, where the caller chose no number: of Go's fuzzer, of its seeds,
// and of rapid.
const (
	fuzzLength    = 1000
	seedLength    = 100
	machineLength = 100
)

// Fuzz lets Go's fuzzer choose. It begins with sequences that seeds make.
func (s Subject) Fuzz(f *testing.F) {
	f.Helper()
	if s.Err != nil {
		f.Fatalf("%s: %v", s.Package, s.Err)
	}
	for seed := range uint64(8) {
		f.Add(fuzz.Bytes(s.Generate, seed, seedLength))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ops := s.Generate(fuzz.FromBytes(data), fuzzLength)
		if failure := s.Test(ops); failure != nil {
			t.Fatalf("%s: %v", s.Package, fuzz.Shrink(ops, failure, s.Test))
		}
	})
}

// Machine returns a property of sequences that rapid chooses and minimizes. length bounds them.
func (s Subject) Machine(length int) func(*rapid.T) {
	if length == 0 {
		length = machineLength
	}
	return func(t *rapid.T) {
		if s.Err != nil {
			t.Fatalf("%s: %v", s.Package, s.Err)
		}
		choices := fuzz.NewChoices(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }, nil)
		ops := s.Generate(choices, rapid.IntRange(1, length).Draw(t, "operations"))
		if f := s.Test(ops); f != nil {
			f.Found = len(ops)
			t.Fatalf("%s: %v", s.Package, f)
		}
	}
}

// Replay performs lines that a failure printed, or that people wrote.
func (s Subject) Replay(t testing.TB, lines string) {
	t.Helper()
	if s.Err != nil {
		t.Fatalf("%s: %v", s.Package, s.Err)
	}
	ops, err := fuzz.Parse(lines)
	if err != nil {
		t.Fatalf("%s: %v", s.Package, err)
	}
	for _, op := range ops {
		if !slices.Contains(s.Operations, op.Name) {
			t.Fatalf("%s: %s is none of the operations %q", s.Package, op.Name, s.Operations)
		}
	}
	if len(ops) == 0 || ops[0].Name != s.Operations[0] {
		t.Fatalf("%s: lines have to begin with %s", s.Package, s.Operations[0])
	}
	if f := s.Test(ops); f != nil {
		f.Found = len(ops)
		t.Fatalf("%s: %v", s.Package, f)
	}
}

// Bytes returns the input of Fuzz for the sequence of a seed.
func (s Subject) Bytes(seed uint64, length int) ([]byte, error) {
	if s.Err != nil {
		return nil, s.Err
	}
	return fuzz.Bytes(s.Generate, seed, length), nil
}
