//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestPreemption: an engine with too little memory for what it was given preempts
// requests and resumes them, with the next step scheduled while one runs; some are
// aborted on the way. Images stay until each has really ended.
func TestPreemption(t *testing.T) {
	for _, test := range []struct {
		name string
		tp   int
		as   pinning
	}{{"tp1", 1, pinOff}, {"tp2", 2, pinOff}, {"pinned", 1, pinFake}} {
		t.Run(test.name, func(t *testing.T) {
			tp := test.tp
			s := setup{tp: tp, mode: "shm", ring: ringOf(12),
				set:   []string{"max_model_len=128", "block_size=32", "num_gpu_blocks_override=8"},
				flags: []string{"--log-stats", "--async-scheduling"}}
			var p *pinned
			if test.as == pinFake {
				p = newPinned(t, kind{newest, "llava"}, test.as)
				s.env = p.env
			}
			r := newRig(t, s)
			const tokens = 90
			var mu sync.Mutex
			whole := map[string]string{} // answers of that length, by input
			var preempted, aborted atomic.Int64
			var wait sync.WaitGroup
			for c := range 8 {
				wait.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(c), uint64(tp)))
					for range 12 {
						in := r.ref.named(t, fmt.Sprint("image", rnd.IntN(30)))
						q, _, err := r.request(in)
						if err != nil {
							t.Error(err)
							return
						}
						q.Params["max_tokens"] = tokens
						s, err := r.Generate(r.ctx, q)
						if err != nil {
							q.Items.Rollback()
							t.Error(err)
							return
						}
						stop := tokens + 1
						if rnd.IntN(5) == 0 {
							stop = rnd.IntN(tokens)
						}
						var got []uint32
						for o, err := range s.Outputs() {
							if err != nil {
								t.Error(err)
								return
							}
							got = append(got, o.TokenIDs...)
							preempted.Add(preemptions(o))
							if len(got) >= stop {
								aborted.Add(1)
								break
							}
						}
						if n := min(len(got), len(in.Tokens)); fmt.Sprint(got[:n]) != fmt.Sprint(in.Tokens[:n]) {
							t.Errorf("%s: got %v, want %v", in.Name, got[:n], in.Tokens[:n])
						}
						if len(got) == tokens {
							mu.Lock()
							if was, ok := whole[in.Name]; ok && was != fmt.Sprint(got) {
								t.Errorf("%s: another answer than before", in.Name)
							}
							whole[in.Name] = fmt.Sprint(got)
							mu.Unlock()
						}
					}
				})
			}
			wait.Wait()
			require.Positive(t, preempted.Load())
			t.Logf("96 requests, preempted %d times, %d aborted on the way: the first tokens are the reference's, and answers that came twice were equal", preempted.Load(), aborted.Load())
			if p == nil {
				r.drained()
				r.sound()
				return
			}
			r.sound() // and not drained: a worker keeps the objects of its last requests until it is given another
			require.NoError(t, r.Close(r.ctx))
			p.driver(tp, p.workers(tp)[0].FromDevice, false)
		})
	}
}

// preemptions counts those in an output.
func preemptions(o engine.Output) (n int64) {
	for _, e := range o.Core.Events {
		if e.Type == enginecore.EventPreempted {
			n++
		}
	}
	return n
}
