package encoder_test

import (
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/encoder"
)

// What a scheduler does with the images of requests.
func ExampleManager() {
	m, err := encoder.NewManager(encoder.ManagerOptions{Capacity: 512})
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule := func(r encoder.Request, i int) {
		hit, err := m.Check(r, i)
		if err == nil && !hit {
			var fits bool
			if fits, err = m.CanAllocate(r, i, 8192, 0); err == nil && fits {
				err = m.Allocate(r, i)
			}
			fmt.Println(r.ID, r.Inputs[i].Identifier, "computed:", fits, err)
			return
		}
		fmt.Println(r.ID, r.Inputs[i].Identifier, "hit:", hit, err)
	}
	first := encoder.Request{ID: "first", Inputs: []encoder.Input{{Identifier: "cat", Embeds: 256}, {Identifier: "dog", Embeds: 256}}}
	second := encoder.Request{ID: "second", Inputs: []encoder.Input{{Identifier: "dog", Embeds: 256}, {Identifier: "cow", Embeds: 256}}}
	schedule(first, 0)
	schedule(first, 1)
	schedule(second, 0)
	schedule(second, 1) // the first request needs the room
	if err := m.Free(first); err != nil {
		fmt.Println(err)
	}
	schedule(second, 1)
	fmt.Println("workers drop", m.TakeFreed())
	// Output:
	// first cat computed: true <nil>
	// first dog computed: true <nil>
	// second dog hit: true <nil>
	// second cow computed: false <nil>
	// second cow computed: true <nil>
	// workers drop [cat]
}

func ExampleCheckIdentifier() {
	fmt.Println(encoder.CheckIdentifier("af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"))
	fmt.Println(errors.Is(encoder.CheckIdentifier("renderer0-mm-1-image-0"), encoder.ErrCounter))
	// Output:
	// <nil>
	// true
}

func ExampleFingerprint_Space() {
	space, err := encoder.Fingerprint{
		Model: "Qwen/Qwen2-VL-2B-Instruct", Revision: "895c3a4", DType: "bfloat16", Layout: "2d 1536", Engine: "0.33.0",
	}.Space()
	fmt.Println(space, err)
	// Output: Qwen2-VL-2B-Instruct.bfloat16.0.33.0.54998c34ef5ba11bc332b0a8cf866294 <nil>
}

func ExampleLMCacheKey() {
	fmt.Println(encoder.LMCacheKey("Qwen/Qwen2-VL-2B-Instruct", "bfloat16", "img0"))
	// Output: Qwen/Qwen2-VL-2B-Instruct@1@0@dd9c8e485df97a20@bfloat16 <nil>
}
