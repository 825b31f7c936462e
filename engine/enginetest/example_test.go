package enginetest_test

import (
	"fmt"

	"github.com/ringcache/ringcache/engine/enginetest"
)

// What the stand-in of an engine answers is known to the test, and depends on the whole prompt. The Example of package engine
// has a frontend with such an engine.
func ExampleTokens() {
	fmt.Println(enginetest.Tokens([]uint32{1, 2, 3}, 2))
	fmt.Println(enginetest.Tokens([]uint32{1, 2, 4}, 2))
	// Output:
	// [67 218]
	// [42 234]
}
