package segment_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/shmring/segment"
)

// A writer makes a segment, and a reader, which would be another process, maps the same bytes.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := segment.Options{Name: "example", RingSize: 1 << 16, Dir: dir} // /dev/shm if Dir is left out
	writer, err := segment.Create(o)
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Destroy() // with the file
	reader, err := segment.Attach(segment.Options{Name: "example", RingSize: 1 << 16, ReadOnly: true, Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	copy(writer.Ring(), "hello")
	fmt.Printf("%s\n", reader.Ring()[:5])
	// Output: hello
}
