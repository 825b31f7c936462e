package wire_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// The engine's half: it reads what a frontend sent.
func Example() {
	frontend, err := enginecore.New(enginecore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := wire.New(serde.Options{})
	if err != nil {
		log.Fatal(err)
	}
	params, err := frontend.ParseSampling(map[string]any{"max_tokens": 8})
	if err != nil {
		log.Fatal(err)
	}
	m, err := frontend.EncodeRequest(&enginecore.Request{RequestID: "request-1", PromptTokenIDs: []uint32{1, 2, 3}, Params: params})
	if err != nil {
		log.Fatal(err)
	}
	got, err := engine.Decode(m.Frames())
	if err != nil {
		log.Fatal(err)
	}
	r := got.(*wire.Request)
	fmt.Println(r.RequestID, r.PromptTokenIDs)
	// Output: request-1 [1 2 3]
}
