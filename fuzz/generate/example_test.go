package generate_test

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/generate"
)

// The beginning of a sequence for a ring: the same for the same seed.
func Example() {
	ops := generate.Ring(generate.RingOptions{})(fuzz.FromSeed(3), 4)
	for _, op := range ops {
		fmt.Println(op.Line())
	}
	// Output:
	// {"op":"ring.new","seq":1,"first_id":2147483645,"ring":"r","size":149}
	// {"op":"ring.alloc","seq":2,"ring":"r","size":23}
	// {"op":"ring.header","seq":3,"address":{"ref":[2,"address",null]},"ring":"r"}
	// {"op":"ring.free","seq":4,"ids":[{"ref":[2,"id",null]}],"ring":"r"}
}
