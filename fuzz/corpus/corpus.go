// Package corpus contains inputs that fuzzing found interesting: small ones, each of which reached code that
// the others did not. Any fuzz target whose arguments have the same types can begin with them:
//
//	func FuzzMyRing(f *testing.F) {
//		corpus.Add(f, "ring")
//		f.Fuzz(func(t *testing.T, data []byte) { ... fuzz.FromBytes(data) ... })
//	}
//
// The inputs of ring, pool, store, lru and pair are choices of package fuzz/generate. The others are
// bytes of docs/format.md, for programs that parse these.
//
// scripts/pick-corpus.py chooses inputs of what `make fuzz` has found.
package corpus

import (
	"embed"
	"fmt"
	"io/fs"
	"iter"
	"path"
)

//go:embed testdata
var files embed.FS

// Target is a *testing.F.
type Target interface{ Add(args ...any) }

// Families returns the names of all families, sorted. The arguments of their inputs are []byte, unless
// another type is named:
//
//   - ring, pool, store, lru, pair: choices that make sequences of operations;
//   - agent: lines of the agent's protocol;
//   - check: edits of a segment and its sidecar, see FuzzCheck of objstore/check, and a uint16;
//   - chunk: a ring, and a uint64, the address;
//   - sidecar: header, states, slot and table, a uint16 and a bool;
//   - metadata, start, messages: a document; msgpack: a document and the calls that read it;
//   - item, outputs, request, feature: a document, a byte and a uint16; ndarray: a document and a uint16.
func Families() []string {
	dirs, err := fs.ReadDir(files, "testdata")
	if err != nil {
		panic(fmt.Errorf("fuzz/corpus: %w", err)) // it is part of the program
	}
	var names []string
	for _, d := range dirs {
		names = append(names, d.Name())
	}
	return names
}

// Entries yields the inputs of a family, each with its name and the arguments of a fuzz
// target. It panics if there is no such family.
func Entries(family string) iter.Seq2[string, []any] {
	inputs, err := fs.ReadDir(files, path.Join("testdata", family))
	if err != nil {
		panic(fmt.Errorf("fuzz/corpus: no family %q, want one of %q", family, Families()))
	}
	return func(yield func(string, []any) bool) {
		for _, f := range inputs {
			b, err := fs.ReadFile(files, path.Join("testdata", family, f.Name()))
			if err != nil {
				panic(fmt.Errorf("fuzz/corpus: %w", err))
			}
			args, err := Parse(b)
			if err != nil {
				panic(fmt.Errorf("fuzz/corpus: %s/%s: %w", family, f.Name(), err))
			}
			if !yield(f.Name(), args) {
				return
			}
		}
	}
}

// Add adds the inputs of a family to the seeds of a fuzz target.
func Add(f Target, family string) {
	for _, args := range Entries(family) {
		f.Add(args...)
	}
}
