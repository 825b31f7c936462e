package wire_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/daemon/wire"
)

// A request as it is sent, and as the other side reads it.
func Example() {
	frame, err := wire.AppendRequest(nil, &wire.Request{
		ID: 7, Op: wire.Pin, Lease: "request-17", Space: "model", Names: []string{"photo-1", "photo-2"},
	})
	if err != nil {
		log.Fatal(err)
	}
	body, err := wire.NewReader(bytes.NewReader(frame), wire.MaxRequest).Next()
	if err != nil {
		log.Fatal(err)
	}
	var q wire.Request
	if err := wire.DecodeRequest(body, &q); err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.ID, q.Op, q.Lease, q.Names)
	// Output: 7 pin request-17 [photo-1 photo-2]
}
