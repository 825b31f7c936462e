package enginecore_test

import (
	"fmt"
	"log"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// A request for text, as frames for the engine's socket. Parameters that vLLM would refuse are refused here.
func Example() {
	codec, err := enginecore.New(enginecore.Options{}) // the newest release
	if err != nil {
		log.Fatal(err)
	}
	params, err := codec.ParseSampling(map[string]any{"max_tokens": 8, "temperature": 0.5})
	if err != nil {
		log.Fatal(err)
	}
	m, err := codec.EncodeRequest(&enginecore.Request{RequestID: "request-1", PromptTokenIDs: []uint32{1, 2, 3}, Params: params})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(m.Frames()), "frames")

	_, err = codec.ParseSampling(map[string]any{"max_tokens": 8, "temperature": -1.0})
	fmt.Println(err)
	// Output:
	// 2 frames
	// serde: cannot encode parameter "temperature": it is the float64 -1, must be a number in [0, 2]
}
