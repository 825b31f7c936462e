package controller_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/lmcache/controller"
)

// A worker registers, as LMCache's do; the peer stands in for it.
func Example() {
	d := directory.New(directory.Options{})
	s, err := controller.New(controller.Options{Directory: d})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.ServeReply(l) }() // and ServePull and ServeHeartbeat on ports of their own
	defer func() { s.Close(); <-ended }()

	worker, err := enginetest.Dealer(context.Background(), "tcp://"+l.Addr().String(), "worker")
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Close()
	err = worker.Send(nil, []byte(`{"type": "RegisterMsg", "instance_id": "pod-1", "worker_id": 0, "ip": "10.0.0.7", "port": 5555, "peer_init_url": null}`))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := worker.Recv(); err != nil {
		log.Fatal(err)
	}
	for _, w := range d.Workers("") {
		fmt.Println(w.Instance, w.IP)
	}
	// Output: pod-1 10.0.0.7
}
