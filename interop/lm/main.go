// Command lm is the Go half of the interop test of package lmcache/lm: it sends random requests to a server
// of lm:// by our client, and compares the answers with a map. It writes what it has done, and ends with
// status 1 at the first difference.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/ringcache/ringcache/lmcache/lm"
)

type value struct {
	meta  lm.Meta
	bytes []byte
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: lm HOST:PORT REQUESTS SEED")
	}
	requests, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	clients := []*lm.Client{
		lm.NewClient(lm.ClientOptions{Address: args[0]}),
		lm.NewClient(lm.ClientOptions{Address: args[0]}),
	}
	known := map[string]value{}
	ctx := context.Background()
	puts, gets, hits, questions := 0, 0, 0, 0
	for n := range requests {
		c, k := clients[rng.IntN(2)], fmt.Sprintf("org/client@1@0@%x@bfloat16", rng.IntN(300))
		want, there := known[k]
		switch rng.IntN(3) {
		case 0:
			puts++
			v := value{
				lm.Meta{
					Format: int32(rng.IntN(9)),
					DType:  []int32{0, 2, 3, 4, 5, 6, 7, 8}[rng.IntN(8)],
					Shape:  [4]int32{2, rng.Int32N(100), 16},
				},
				make([]byte, []int{0, 100, 70_000}[rng.IntN(3)]),
			}
			for i := range v.bytes {
				v.bytes[i] = byte(rng.Uint32())
			}
			if err := c.Put(ctx, k, v.meta, v.bytes); err != nil {
				return err
			}
			known[k], there = v, true
			fallthrough // it is stored before the other connection asks
		case 1:
			questions++
			found, err := c.Exists(ctx, k)
			if err != nil {
				return err
			}
			if found != there {
				return fmt.Errorf("request %d: %s is there: %t, and should be: %t", n, k, found, there)
			}
		case 2:
			gets++
			p, b, err := c.Get(ctx, k, nil)
			switch {
			case there && err == nil && p.Meta == want.meta && bytes.Equal(b, want.bytes):
				hits++
			case there || !errors.Is(err, lm.ErrMiss):
				return fmt.Errorf(
					"request %d: %s: got %+v with %d bytes (%w), want %+v with %d",
					n, k, p, len(b), err, want.meta, len(want.bytes))
			}
		}
	}
	for _, c := range clients {
		if err := errors.Join(c.Health(ctx), c.Close()); err != nil {
			return err
		}
	}
	fmt.Printf("%d puts, %d gets with %d hits, %d questions; different 0\n", puts, gets, hits, questions)
	return nil
}
