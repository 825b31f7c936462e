package agent_test

import (
	"log"
	"os"
	"strings"

	"github.com/ringcache/ringcache/agent"
)

// A ring of 100 bytes, driven by lines of text: each request has one reply.
func Example() {
	requests := strings.NewReader(`{"op":"ring.new","ring":"r","size":100}
{"op":"ring.alloc","ring":"r","size":20,"seq":1}
{"op":"ring.free","ring":"r","ids":[0]}
`)
	if err := agent.New().Run(requests, os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"ok":true}
	// {"address":0,"id":0,"ok":true,"seq":1}
	// {"freed":[0],"ok":true}
}
