package zmq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/engine/enginetest"
	"github.com/ringcache/ringcache/engine/zmq"
)

// The socket to which engines send their answers. The peer is one of package enginetest.
func Example() {
	ctx := context.Background()
	socket, err := zmq.Transport{}.Pull("tcp://127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer socket.Close()
	peer, err := enginetest.Push(ctx, socket.Endpoint())
	if err != nil {
		log.Fatal(err)
	}
	defer peer.Close()
	if err := peer.Send([]byte("an"), []byte("answer")); err != nil {
		log.Fatal(err)
	}
	m, err := socket.Recv(ctx)
	fmt.Printf("%s %v\n", m.Frames, err)
	// Output: [an answer] <nil>
}
