package lrusync_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
)

// Every method at any time from any goroutine, for the race detector.
func TestManyGoroutines(t *testing.T) {
	o := lrusync.Options{Capacity: 50}
	p := newPair(t, o)
	only, err := lrusync.NewProcessorOnly[int64](o)
	require.NoError(t, err)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 3))
			for range 2000 {
				k := fmt.Sprint("k", rnd.IntN(20))
				in := &lrusync.Input{Size: int64(rnd.IntN(9))}
				one := []lrusync.Item{{Key: k, Have: true, Size: in.Size}}
				switch rnd.IntN(12) {
				case 0:
					p.Cached(k)
					only.Cached(k)
				case 1:
					p.Touch(k)
					only.Touch(k)
				case 2:
					_, _, _ = p.Update(k, in)
					_, _, _ = only.Update(k, 1, in)
				case 3:
					p.Invalidate(k)
					only.Invalidate(k)
				case 4:
					p.Stats(true)
					p.r.Stats(true)
					only.Stats(true)
				case 5:
					p.Contents()
					p.r.Contents()
					only.Contents()
				case 6:
					p.Lookup(k)
					p.Renew(k)
				case 7:
					if rnd.IntN(20) == 0 {
						p.Clear()
						p.r.Clear()
						only.Clear()
					}
				case 8:
					_ = p.Barrier(func(e lrusync.Envelope) error { p.r.Reset(e); return nil })
				case 9:
					_, _ = p.r.Features([]lrusync.Feature[int64]{with(k, in.Size), without("k1")})
				default:
					tk, err := p.Send(one, func(lrusync.Ticket) error { return nil })
					if err != nil {
						t.Error(err)
						return
					}
					res, err := p.r.Apply(tk.Envelope, features(one, tk))
					if err != nil {
						t.Error(err)
						return
					}
					if res.Drift != nil {
						p.Repair(*res.Drift)
					}
					p.Missed(tk.Envelope, res.Missing)
				}
				for _, check := range []func() error{p.CheckStructure, p.r.CheckStructure, only.CheckStructure} {
					if err := check(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
}
