// Package pycompat holds the conventions of CPython and vLLM that a Go process
// has to follow to share memory with a Python one: what differs between the
// wire generations of vLLM ([Generation]), how segments are named, and how to
// take part in a multiprocessing.Lock ([Semaphore]).
//
// It holds facts and mechanisms; what to do with them is decided above.
package pycompat
