// Package litmus contains small programs that show whether a processor reorders what this module
// relies on: each lets two threads, through two mappings of one file as two processes have them,
// make a few loads and stores of the same words many times, and counts the outcomes that must not be.
//
// The programs are tests, and print a table: processor, program, runs, runs in which both sides came to
// the same place at the same time, forbidden outcomes. A program whose sides never met is printed as not
// shown. That is so on one processor. Controls leave out what makes the outcome impossible; where a control
// has forbidden outcomes the program can find them.
//
//	go test ./internal/mem/litmus -v -rounds 20000 -timeout 2h
//
// Each side is a thread. Both walk over the same 500 places in a round, wait at each for the other, and begin
// a random moment apart. A side that waits in vain, since the other has no processor, finishes the round
// alone. Two of the programs run in two processes as well.
//
// They show most on a weakly ordered processor such as arm64. On x86 only a store that is followed by a load
// of another word is reordered, so only store buffering can fail there. Under an emulator they show nothing
// about arm64, since the emulator keeps the order of the host.
package litmus
