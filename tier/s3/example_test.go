package s3_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/s3"
)

// A store that is away is no error of Open, and answers ErrUnavailable until it is back: a store of levels goes on without it.
func Example() {
	ctx := context.Background()
	l, err := s3.Open(ctx, s3.Options{URL: "s3://bucket/prefix?endpoint=http://127.0.0.1:1", AccessKey: "key", SecretKey: "secret"})
	if err != nil {
		log.Fatal(err) // of the options
	}
	defer l.Close()
	found := l.Stat(ctx, []tier.Key{{Space: "model", Name: "photo-1"}})
	fmt.Println(errors.Is(found[0].Err, tier.ErrUnavailable))
	// Output: true
}
