package encoder_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
)

// Outputs of encoders go into any level, and from there into a folder that vLLM's
// ECExampleConnector uses.
func ExampleTree() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "encoder")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	level := newMapLevel() // in a program: a level of package tier/memory, tier/disk or tier/redis

	key := tier.Key{Space: "gemma-3-27b bfloat16", Name: "9f86d081884c7d65"}
	tensor := &serde.Tensor{DType: "bfloat16", Shape: []int{256, 5376}, Data: make([]byte, 256*5376*2)}
	if err := encoder.Save(ctx, level, tier.Object{Key: key}, tensor); err != nil {
		panic(err)
	}

	tree := encoder.Tree{Plain: true}
	for object, err := range tree.Export(ctx, level, key.Space, folder) {
		fmt.Printf("%s: %s, error %v\n", object.Name, object.Note, err)
	}
	info, err := os.Stat(filepath.Join(folder, "9f86d081884c7d65", "encoder_cache.safetensors"))
	fmt.Println(info.Size(), "bytes, error", err)
	// Output:
	// 9f86d081884c7d65: bfloat16 256 5376, error <nil>
	// 2752600 bytes, error <nil>
}

func ExampleParseNote() {
	note, err := encoder.ParseNote([]byte("bfloat16 256 5376"))
	if err != nil {
		panic(err)
	}
	size, err := note.Size()
	fmt.Println(note.DType, note.Shape, size, err)
	// Output: bfloat16 [256 5376] 2752512 <nil>
}
