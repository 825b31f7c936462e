package model_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// What vLLM 0.33.0 does with a ring of 100 bytes.
func Example() {
	release, err := model.Lookup("0.33.0")
	if err != nil {
		log.Fatal(err)
	}
	ops, err := fuzz.Parse(`{"op":"ring.new","ring":"r","size":100}
{"op":"ring.alloc","ring":"r","size":20}
{"op":"ring.alloc","ring":"r","size":90}`)
	if err != nil {
		log.Fatal(err)
	}
	ring := model.NewRing(release)
	defer ring.Close()
	replies, err := ring.Do(ops)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(replies[1].Kind == "", replies[2].Kind)
	// Output: true full
}
