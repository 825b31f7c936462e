package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
	"github.com/ringcache/ringcache/shmring/segment"
)

// A program that copies chunks to a GPU, and goes on without pinned pages where it can't have them.
func Example() {
	s, err := segment.Create(segment.Options{Name: fmt.Sprintf("ringcache-example-cuda-%d", os.Getpid()), RingSize: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Destroy() // after the registration has ended

	driver, err := cuda.Open(0, cuda.Options{})
	switch {
	case errors.Is(err, pin.ErrUnavailable):
		fmt.Println("done") // err has the cause: no driver, no GPU, a program without cgo
		return
	case err != nil:
		log.Fatal(err) // there are GPUs, but no such device
	}
	defer driver.Close()
	registration, err := driver.Register(s.Bytes(), pin.RegisterOptions{})
	if err != nil {
		log.Print(err) // copies are slower
	} else {
		defer registration.Unregister()
	}

	chunk := s.Ring()[4096:8192]
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
	fmt.Println("done")
	// Output: done
}
