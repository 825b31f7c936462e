package pin_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/pin"
)

// A program takes a Registrar, and works without a device, too: Nop registers nothing, and reports that.
func Example() {
	var registrar pin.Registrar = pin.Nop{} // or that of package pin/cuda
	r, err := registrar.Register(make([]byte, 4096), pin.RegisterOptions{ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Unregister()
	fmt.Println("pinned:", r.Pinned())
	// Output: pinned: false
}
