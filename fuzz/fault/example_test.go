package fault_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/fuzz/fault"
)

// A file is damaged, and mended again.
func ExampleKind_Apply() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "object")
	if err := os.WriteFile(path, []byte("bytes"), 0o600); err != nil {
		log.Fatal(err)
	}
	change, err := fault.FlipBit.Apply(path, 0, 5, 1) // a bit of the first five bytes, by the seed 1
	if err != nil {
		log.Fatal(err)
	}
	damaged, _ := os.ReadFile(path)
	if err := change.Undo(); err != nil {
		log.Fatal(err)
	}
	mended, _ := os.ReadFile(path)
	fmt.Println(string(damaged) != "bytes", string(mended))
	// Output: true bytes
}
