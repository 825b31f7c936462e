package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/redis"
)

// A server that is away is no error of Open, and answers ErrUnavailable until it is back: a store goes on without it.
func Example() {
	ctx := context.Background()
	l, err := redis.Open(ctx, redis.Options{URL: "unix:///nowhere/redis.sock?ttl=24h"})
	if err != nil {
		log.Fatal(err) // of the options
	}
	defer l.Close()
	found := l.Stat(ctx, []tier.Key{{Space: "model", Name: "photo-1"}})
	fmt.Println(errors.Is(found[0].Err, tier.ErrUnavailable))
	// Output: true
}
