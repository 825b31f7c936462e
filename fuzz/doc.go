// Package fuzz tests rings, stores, mirrored caches and levels of any make: those of this module, your
// own, and vLLM's. docs/test-your-own-ring.md is the way in.
//
// Most users import one of
//
//   - fuzz/ringtest, for an allocator of chunks over a []byte; fuzz/ringrules has its invariants for
//     programs, which ringcache fuzz --placement own applies to rings in any language;
//   - fuzz/storetest, for a store of objects by key;
//   - fuzz/lrutest, for an LRU cache, and for a mirrored pair of them;
//   - fuzz/tiertest, for a level of package tier;
//   - fuzz/explore and fuzz/linear, for protocols between goroutines or processes.
//
// This package contains what these share. A test is a sequence of operations, and an operation
// is a line of the agent's protocol (docs/agent.md), so whatever fails can be printed, and
// repeated by anyone with `ringcache fuzz --replay` or with a program of their own.
//
//	[]byte, seed or rapid -> Choices -> Generator -> []Op -> System.Do -> []Reply -> invariants, differences
//	                                                  ^                                  |
//	                                                  +-------- Minimize <--- Failure <--+
//
// A [System] performs operations: a model of fuzz/model, an allocator behind an interface of
// fuzz/ringtest, the agent of this module, any process that speaks its protocol, or the real
// vLLM (the last three are in fuzz/system).
//
// # Concurrency
//
// Values of this package must not be used by two goroutines at a time.
package fuzz
