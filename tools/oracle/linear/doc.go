// Package linear has a test of stores and readers against porcupine, a checker of
// linearizability.
package linear
