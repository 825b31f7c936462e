package warm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/ringcache/ringcache/encoder/warm"
)

// An engine is asked about all images of a folder.
func Example() {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // in place of vLLM's server
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"a"}}]}`)
	}))
	defer engine.Close()

	ctx := context.Background()
	found, err := warm.Find(ctx, []string{"../../examples/media"})
	if err != nil {
		panic(err)
	}
	result, err := warm.Run(ctx, found.Images, warm.Options{URL: engine.URL, Model: "llava", Report: func(e warm.Event) {
		if e.Err != nil {
			fmt.Println(e.Path, e.Err, e.Wait)
		}
	}})
	fmt.Println(result.Sent, len(result.Failures), err)
	// Output: 6 0 <nil>
}
