package shared_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/kv/directory/shared"
)

// A Redis that is away is no error of Open: the directory takes reports and answers, and others learn of them
// when it is back.
func Example() {
	d := directory.New(directory.Options{Shared: true})
	s, err := shared.Open(context.Background(), shared.Options{Directory: d, URL: "unix:///nowhere/redis.sock", Face: "example"})
	if err != nil {
		log.Fatal(err) // of the options
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	if err := d.Register(directory.Worker{ID: directory.ID{Instance: "pod-1"}}); err != nil {
		log.Fatal(err)
	}
	_, known := d.Worker(directory.ID{Instance: "pod-1"})
	fmt.Println(known)
	end()
	<-done
	// Output: true
}
