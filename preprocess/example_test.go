package preprocess_test

import (
	"fmt"
	"log"
	"os"

	"github.com/ringcache/ringcache/preprocess"
)

// What a photo becomes, before any of it is decoded: room for its tensors can be made by that.
func Example() {
	p, err := preprocess.Open("testdata/models/qwen2-vl", preprocess.Options{}) // the folder of a model
	if err != nil {
		log.Fatal(err)
	}
	photo, err := os.ReadFile("../examples/media/coffee.png")
	if err != nil {
		log.Fatal(err)
	}
	size, err := preprocess.Inspect(photo)
	if err != nil {
		log.Fatal(err)
	}
	layout, err := p.Layout(size)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(size, "pixels,", layout.Tokens, "tokens,", layout.Bytes, "bytes")
	// Output:
	// (600,400) pixels, 12 tokens, 56472 bytes
}
