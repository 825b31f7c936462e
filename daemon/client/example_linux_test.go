package client_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// serve is a daemon in this process; usually it is `ringcache serve`.
func serve(dir string) (end func()) {
	level, err := memory.Open(memory.Options{Name: "example", Dir: dir, Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	store, err := tier.Open(ctx, tier.Options{Memory: level})
	if err != nil {
		log.Fatal(err)
	}
	server, err := daemon.NewServer(daemon.ServerOptions{Store: store, Memory: level, ShmDir: dir})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	return func() {
		if err := server.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
		<-ended
		store.Close()
		level.Remove()
	}
}

// A client stores an object, whose bytes it writes to its own mapping of the segment, and finds it again.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	defer serve(dir)()

	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{Socket: dir + "/socket", Name: "example", Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	memory, err := c.Map(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Close()

	q := wire.Request{Lease: "request-1", Space: "model", Objects: []wire.Object{{Name: "photo", Size: 6}}}
	items, err := c.Reserve(ctx, q)
	if err != nil {
		log.Fatal(err)
	}
	if err := memory.Write(items[0], []byte("output")); err != nil {
		log.Fatal(err)
	}
	q = wire.Request{Lease: "request-1", Space: "model", Names: []string{"photo"}}
	if _, err := c.Commit(ctx, q); err != nil {
		log.Fatal(err)
	}
	items, err = c.Pin(ctx, q) // keeps it in place for five minutes, or until Release
	if err != nil {
		log.Fatal(err)
	}
	output, err := memory.Read(nil, items[0])
	fmt.Printf("%s %s %v\n", items[0].Status, output, err)
	if err := c.Release(ctx, wire.Request{Leases: []string{"request-1"}}); err != nil {
		log.Fatal(err)
	}
	// Output: hit output <nil>
}
