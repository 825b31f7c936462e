// Package model contains reference models of vLLM's ring, store, LRU cache and mirrored caches,
// of every release from 0.11.0 to 0.33.0: plain, slow, and written from docs/format.md and
// docs/compatibility.md alone. No model shares code with the packages that it judges.
//
// A model is a fuzz.System, so that it can be compared with any other system operation by
// operation. Where a system may decide freely, as a pool does about places, there is nothing to
// compare with: [Pool] is given what was decided, and returns what is wrong with it.
//
// See docs/decisions.md, "Reference models share no code with what they judge".
package model
