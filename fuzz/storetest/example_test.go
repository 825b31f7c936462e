package storetest_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/fuzz/storetest"
)

// What Check would print of a store with a bug. That of newTiny has a hundred lines, and a bug of this name.
func ExampleFind() {
	failure, _, err := storetest.Find(newTiny("evicts what is leased"), storetest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(failure.Invariant)
	// Output: protected-stays
}
