// Package litmus contains small programs that show whether a processor reorders what this module
// relies on: each lets two goroutines, through two mappings of one file as two processes have them,
// make a few loads and stores of the same words many times, and counts the outcomes that must not be.
//
// The programs are tests, and print a table: processor, program, runs, runs in which both sides were
// there at the same time, forbidden outcomes.
//
//	go test ./fuzz/litmus -v -iterations 20000000 -timeout 2h
//
// They say most on a weakly ordered processor such as arm64. On x86 only a store that is followed by a load of
// another word is reordered, so only store buffering can fail there. Under an emulator they say
// nothing about arm64, since the emulator keeps the order of the host.
package litmus
