// Package model contains reference models of vLLM's ring, store, LRU cache and mirrored caches,
// of every release from 0.11.0 to 0.33.0: plain, slow, and written from docs/format.md and
// docs/compatibility.md alone. No model shares code with the packages that it judges.
//
// A model is a fuzz.System, so that it can be compared with any other system operation by
// operation. Where a system may decide freely, as a pool does about places, there is no model
// to compare with, but a list of invariants.
package model
