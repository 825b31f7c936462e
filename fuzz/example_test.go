package fuzz_test

import (
	"fmt"
	"log"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// Of a sequence that shows a bug, the operations that are needed stay, with the smallest numbers that still show it.
func ExampleMinimize() {
	ops, err := fuzz.Parse(`{"op":"ring.new","ring":"r","size":100}
{"op":"ring.alloc","ring":"r","size":20}
{"op":"ring.alloc","ring":"r","size":77}
{"op":"ring.clear","ring":"r"}`)
	if err != nil {
		log.Fatal(err)
	}
	fails := func(ops []fuzz.Op) bool { // the bug is in any allocation of more than 40 bytes
		for _, op := range ops {
			if size, err := strconv.Atoi(fmt.Sprint(op.Args["size"])); err == nil && op.Name == "ring.alloc" && size > 40 {
				return true
			}
		}
		return false
	}
	fmt.Println(strings.TrimSpace(fuzz.Format(fuzz.Minimize(ops, fails))))
	// Output: {"op":"ring.alloc","ring":"r","size":41}
}
