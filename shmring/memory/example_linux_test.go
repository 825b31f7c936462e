package memory_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

// All pages of a segment are mapped before the first use. The report says what is so, and why what is not is not.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := segment.Create(segment.Options{Name: "example", RingSize: 1 << 20, Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Destroy()
	report, err := s.Prepare(context.Background(), memory.Options{Prefault: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("prefaulted:", report.Prefault.Obtained, report.Prefault.Reason)
	// Output: prefaulted: true
}
