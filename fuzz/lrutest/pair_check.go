package lrutest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz"
)

// CheckPair is [Check] for a pair: requests over a link that delivers, holds back, reorders, loses
// and refuses messages.
func CheckPair(t testing.TB, n NewPair, o Options) {
	t.Helper()
	newPairSubject(n, o).Check(t)
}

// FindPair is [Find] for a pair.
func FindPair(n NewPair, o Options) (failure *fuzz.Failure, done int, err error) {
	return newPairSubject(n, o).Find()
}

// ReplayPair is [Replay] for a pair.
func ReplayPair(t testing.TB, n NewPair, o Options, lines string) {
	t.Helper()
	newPairSubject(n, o).Replay(t, lines)
}

// FuzzPair is [Fuzz] for a pair.
func FuzzPair(f *testing.F, n NewPair, o Options) {
	f.Helper()
	newPairSubject(n, o).Fuzz(f)
}

// MachinePair is [Machine] for a pair.
func MachinePair(n NewPair, o Options) func(*rapid.T) { return newPairSubject(n, o).Machine(o.Length) }

// BytesPair is [Bytes] for a pair.
func BytesPair(n NewPair, o Options, seed uint64, length int) ([]byte, error) {
	return newPairSubject(n, o).Bytes(seed, length)
}
