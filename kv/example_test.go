package kv_test

import (
	"encoding/hex"
	"fmt"

	"github.com/ringcache/ringcache/kv"
)

// A look-up of a server: one engine with one worker, and a request that comes twice.
func Example() {
	layout := kv.Layout{
		Model: "Qwen/Qwen3-8B", World: 1, ChunkTokens: 4,
		Groups: []kv.Group{{Layers: 36, Slots: 4, Hidden: 1024, DType: "bfloat16", Planes: 2, BlockTokens: 4}},
	}
	space, err := layout.Space(0, 0, "tenant A")
	if err != nil {
		fmt.Println(err)
		return
	}
	hasher, err := kv.NewHasher(kv.Scheme{ChunkTokens: layout.ChunkTokens})
	if err != nil {
		fmt.Println(err)
		return
	}
	chain := hasher.NewChain()  // kept with the request
	stored := map[string]bool{} // a level of package tier, in short
	for _, tokens := range [][]int64{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}} {
		if err := chain.SetTokens(tokens); err != nil {
			fmt.Println(err)
			return
		}
		first, last := chain.Range(0, len(tokens))
		n, err := kv.LongestPrefix([]int{0}, layout.World, first, last, func(_, _, first int, found []bool) error {
			for i := range found {
				found[i] = stored[space+hex.EncodeToString(chain.Hash(first+i))]
			}
			return nil
		})
		fmt.Println(n, "of", last, "chunks can be loaded", err)
		for i := n; i < last; i++ {
			stored[space+hex.EncodeToString(chain.Hash(i))] = true
		}
	}
	// Output:
	// 0 of 2 chunks can be loaded <nil>
	// 2 of 3 chunks can be loaded <nil>
}

func ExampleParseObjectKey() {
	key, err := kv.ParseObjectKey("Qwen/Qwen3-8B@02010201@0@a0a1a2a3@tenant A")
	fmt.Printf("%s, rank %08x, salt %q, %v\n", key.Model, uint32(key.Rank), key.Salt, err)
	name, err := key.FileName()
	fmt.Println(name, err)
	_, err = kv.ParseObjectKey("Qwen/Qwen3-8B@2010201@0@a0a1a2a3")
	fmt.Println(err)
	// Output:
	// Qwen/Qwen3-8B, rank 02010201, salt "tenant A", <nil>
	// Qwen-SEP-Qwen3-8B@0x02010201@0@a0a1a2a3@tenant A.data <nil>
	// kv: invalid argument: object key "Qwen/Qwen3-8B@2010201@0@a0a1a2a3": the rank "2010201" is not of 32 bits in hexadecimal, in small letters and 8 or more digits
}
