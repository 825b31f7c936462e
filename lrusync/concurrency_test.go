package lrusync_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
)

// Every method at any time from any goroutine, for the race detector.
func TestManyGoroutines(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 50})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 3))
			for range 2000 {
				if !assert.NoError(t, anyCall(p, rnd)) {
					return
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, p.CheckStructure())
	require.NoError(t, p.r.CheckStructure())
}

func anyCall(p pair, rnd *rand.Rand) error {
	k := fmt.Sprint("k", rnd.IntN(20))
	switch rnd.IntN(10) {
	case 0:
		p.Lookup(k)
	case 1:
		p.Renew(k)
	case 2:
		p.Stats()
		p.r.Stats()
	case 3:
		p.Contents()
		p.r.Contents()
	case 4:
		if rnd.IntN(20) == 0 {
			p.r.Clear(lrusync.Envelope{})
		}
	case 5:
		return p.Clear(ctx, func(e lrusync.Envelope) error { p.r.Clear(e); return nil })
	case 6: // of a sender of vLLM
		_, err := p.r.Receive(lrusync.Envelope{}, []lrusync.Feature[int64]{{Key: k, HasData: true, Value: 3, Size: 3}, {Key: "k1"}})
		return err
	case 7:
		if err := p.CheckStructure(); err != nil {
			return err
		}
		return p.r.CheckStructure()
	default:
		one := []lrusync.Item{{Key: k, HasData: true, Size: int64(rnd.IntN(9))}}
		tk, err := p.Send(ctx, one, func(lrusync.Ticket) error { return nil })
		if err != nil {
			return err
		}
		res, err := p.r.Receive(tk.Envelope, features(one, tk))
		if err != nil {
			return err
		}
		if res.Drift != nil {
			p.Repair(*res.Drift)
		}
		p.Missed(tk.Envelope, res.Missing)
	}
	return nil
}
