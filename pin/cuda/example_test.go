package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/segment"
)

// A program that copies chunks of a segment to a GPU. Without a GPU it goes on, and its segment is not pinned.
func Example() {
	var registrar pin.Registrar = pin.Nop{}
	driver, err := cuda.Open(0, cuda.Options{})
	switch {
	case errors.Is(err, pin.ErrUnavailable): // err contains the cause: no driver, no GPU, a program without cgo
	case err != nil:
		log.Fatal(err) // there are GPUs, but not this one
	default:
		defer driver.Close()
		registrar = driver
	}

	s, err := segment.Create(segment.Options{Name: fmt.Sprintf("ringcache-example-cuda-%d", os.Getpid()), RingSize: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Destroy() // ends the registration, before the driver is closed
	p, err := s.Pin(context.Background(), registrar, segment.PinOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if driver != nil {
		if !p.Pinned() {
			log.Print("copies are slower: ", p.Reason())
		}
		send(driver, s.Ring()[4096:8192])
	}
	fmt.Println("done")
	// Output: done
}

// send copies a chunk to the device.
func send(driver *cuda.Driver, chunk []byte) {
	memory, err := driver.Alloc(len(chunk))
	if err != nil {
		log.Fatal(err)
	}
	defer memory.Free()
	c, err := driver.Copy(memory, 0, chunk)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Wait(); err != nil { // only now may the chunk be used again
		log.Fatal(err)
	}
}
