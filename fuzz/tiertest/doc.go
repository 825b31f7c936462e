// Package tiertest has levels for tests of what stands on package tier: [Map], which is a level on
// the heap, and [Fault], which makes any level fail as a test wants.
package tiertest
