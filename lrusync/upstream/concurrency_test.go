package upstream_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
)

// Every step at any time from any goroutine, for the race detector.
func TestManyGoroutines(t *testing.T) {
	o := lrusync.Options{Capacity: 50}
	p := newPair(t, o)
	only, err := upstream.NewProcessorOnlyCache[int64](o)
	require.NoError(t, err)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 3))
			for range 2000 {
				anyStep(p, only, rnd)
				for _, check := range []func() error{p.CheckStructure, p.engine.CheckStructure, only.CheckStructure} {
					if !assert.NoError(t, check()) {
						return
					}
				}
			}
		})
	}
	all.Wait()
}

func anyStep(p pair, only *upstream.ProcessorOnlyCache[int64], rnd *rand.Rand) {
	k := fmt.Sprint("k", rnd.IntN(20))
	in := &upstream.Input{Size: int64(rnd.IntN(9))}
	switch rnd.IntN(8) {
	case 0:
		p.IsCached(k)
		only.IsCached(k)
	case 1:
		p.Touch(k)
		only.Touch(k)
	case 2:
		_, _, _ = p.GetAndUpdate(k, in)
		_, _, _ = only.GetAndUpdate(k, 1, in)
	case 3:
		p.Invalidate(k)
		only.Invalidate(k)
	case 4:
		p.Stats()
		p.engine.Stats()
		only.Stats()
	case 5:
		p.Contents()
		p.engine.Contents()
		only.Contents()
	case 6:
		if rnd.IntN(20) == 0 {
			p.Clear()
			p.engine.Clear()
			only.Clear()
		}
	default:
		_, _ = p.engine.GetAndUpdate([]lrusync.Feature[int64]{with(k, in.Size), without("k1")})
	}
}
