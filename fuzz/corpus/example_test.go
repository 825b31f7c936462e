package corpus_test

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz/corpus"
)

// What there is for a target whose argument are the choices of a sequence for a ring.
func Example() {
	fmt.Println(slices.Contains(corpus.Families(), "ring"))
	n := 0
	for _, arguments := range corpus.Entries("ring") {
		if _, ok := arguments[0].([]byte); ok {
			n++
		}
	}
	fmt.Println(n > 10)
	// Output:
	// true
	// true
}
