package lm_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/ringcache/ringcache/lmcache/lm"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// A server of lm:// over the levels of a store, and a client of it.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	level, err := memory.Open(memory.Options{Name: "example", Dir: dir, Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer level.Remove()
	store, err := tier.Open(ctx, tier.Options{Memory: level})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	server, err := lm.NewServer(lm.Options{Open: func(net.Conn, func()) (lm.Store, error) { return lm.Over(store), nil }})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() { server.Shutdown(ctx); <-ended }()

	c := lm.NewClient(lm.ClientOptions{Address: "unix://" + dir + "/socket"})
	defer c.Close()
	key := "vllm@org/model@1@0@2a@bfloat16"
	if err := c.Put(ctx, key, lm.Meta{Format: 1, DType: 3, Shape: [4]int32{2, 1, 1, 1}}, []byte("KV")); err != nil {
		log.Fatal(err)
	}
	found, err := c.Exists(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	reply, value, err := c.Get(ctx, key, nil)
	fmt.Printf("%t %s %v %v\n", found, value, reply.Meta.Shape, err)
	// Output: true KV [2 1 1 1] <nil>
}
