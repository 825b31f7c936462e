package lrutest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
)

// Check performs random sequences and fails the test for the first that breaks an invariant. It
// prints that sequence minimized, with the seed and the command that repeat it.
func Check(t testing.TB, n New, o Options) {
	t.Helper()
	newSubject(n, o).Check(t)
}

// Find is [Check] for those who want to go on with what it finds, such as a test that plants
// defects: it returns the failure, or nil, and the number of operations that it performed until then,
// without those of minimizing. The error is that of the options.
func Find(n New, o Options) (failure *fuzz.Failure, done int, err error) {
	return newSubject(n, o).Find()
}

// Replay performs operations of the agent's protocol: those that a failure printed, or that you
// wrote.
func Replay(t testing.TB, n New, o Options, lines string) {
	t.Helper()
	newSubject(n, o).Replay(t, lines)
}

// Fuzz lets Go's fuzzer choose the operations.
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
