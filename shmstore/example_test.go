package shmstore_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/ringcache/ringcache/shmstore"
)

// A daemon keeps chunks of a KV cache for the connections of its clients. Clients map the
// segment and find a chunk by offset and length.
func Example() {
	name := fmt.Sprintf("ringcache-example-kv-%d", os.Getpid())
	store, err := shmstore.Create(shmstore.Options{
		Name: name, Size: 1 << 20, Align: 4096, Format: "kv-1",
		Quotas: map[string]int64{"batch": 256 << 10},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Abandon() // removes the segment, whatever is open

	// A connection leases what it uses.
	connection, err := store.Begin(shmstore.RequestOptions{ID: "connection-7"})
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Rollback() // does nothing after Commit
	chunk, err := connection.Lookup("chunk-a", 1)
	if errors.Is(err, shmstore.ErrNotFound) {
		res, err := connection.Reserve("chunk-a", 8192, shmstore.PutOptions{Tenant: "batch", Cost: 40 * time.Millisecond})
		if err != nil {
			log.Fatal(err) // ErrFull, ErrTooLarge: do without the store
		}
		defer res.Discard() // does nothing after Commit
		copy(res.Bytes(), "keys and values")
		if chunk, err = res.Commit(1); err != nil {
			log.Fatal(err)
		}
	} else if err != nil {
		log.Fatal(err)
	}
	handle := chunk.Handle()
	if err := connection.Commit(); err != nil { // the handle is about to be sent
		log.Fatal(err)
	}
	fmt.Println("offset", handle.Offset%4096, "length", handle.Length)

	// In the client:
	reader, err := shmstore.Open(name, shmstore.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	view, err := reader.Get(handle)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(view.Bytes()[:15]), view.Check())
	view.Release()

	// The client goes away without a word: what it may still look at waits for a fence.
	connection.Abort()
	evicted, err := store.Evict("chunk-a")
	fmt.Println("evicted", len(evicted), err)
	store.Fence().Passed() // once every client has answered a message that was sent behind the handle
	evicted, err = store.Evict("chunk-a")
	fmt.Println("evicted", len(evicted), err)
	// Output:
	// offset 0 length 8192
	// keys and values <nil>
	// evicted 0 <nil>
	// evicted 1 <nil>
}
