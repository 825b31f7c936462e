package pycompat_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/pycompat"
)

// What differs between two releases of vLLM, and what happens with one that nobody has run.
func Example() {
	for _, version := range []string{"0.11.0", "0.33.0"} {
		g, err := pycompat.Lookup(version)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d bytes in front of the ring, signed %t\n", g.Version, g.DataOffset, g.Signed)
	}
	_, err := pycompat.Lookup("9.0.0")
	fmt.Println(errors.Is(err, pycompat.ErrUnknownVersion))
	// Output:
	// 0.11.0: 0 bytes in front of the ring, signed false
	// 0.33.0: 32 bytes in front of the ring, signed true
	// true
}
