package shmring_test

import (
	"fmt"

	"github.com/ringcache/ringcache/shmring"
)

// The ring alone, over any bytes.
func ExampleRing() {
	ring := shmring.NewRing(make([]byte, 100), shmring.RingOptions{})
	for range 4 {
		address, id, payload, err := ring.Alloc(20)
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(address, id, len(payload))
	}
	fmt.Println(ring.Free(func(id uint32, _ []byte) bool { return id < 2 }, ring.Size()))
	address, id, _, err := ring.Alloc(20)
	fmt.Println(address, id, err)
	// Output:
	// 0 0 20
	// 28 1 20
	// 56 2 20
	// shmring: no room for a chunk of 28 bytes: 84 bytes of 100 bytes are in use; free chunks first
	// [0 1]
	// 100 3 <nil>
}
