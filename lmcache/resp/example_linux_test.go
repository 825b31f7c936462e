package resp_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/ringcache/ringcache/lmcache/resp"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// A client of Redis stores a value in the levels of a store.
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
	server, err := resp.NewServer(resp.Options{Store: store, Space: resp.Space})
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

	c, err := net.Dial("unix", dir+"/socket")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "*3\r\n$3\r\nSET\r\n$5\r\nchunk\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$5\r\nchunk\r\n")
	in := bufio.NewScanner(c)
	for range 3 {
		in.Scan()
		fmt.Println(in.Text())
	}
	// Output:
	// +OK
	// $5
	// value
}
