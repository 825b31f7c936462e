package engine_test

import (
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/enginetest"
)

// BenchmarkRequest is what a request takes in the frontend alone: the stand-in is a
// process of its own, as an engine is. cpu-ns/op is the processor time of this process,
// on all threads; with more than one client, ns/op is the time between two requests.
func BenchmarkRequest(b *testing.B) {
	for _, c := range []struct {
		name    string
		clients int
		tokens  int
		keys    []string
		prompt  []uint32 // instead of the usual one
	}{
		{"text/clients=1/tokens=1", 1, 1, nil, nil},
		{"text/clients=1/tokens=32", 1, 32, nil, nil},
		{"text/clients=8/tokens=32", 8, 32, nil, nil},
		{"repeat/clients=1/tokens=1", 1, 1, []string{"a"}, nil},
		{"repeat/clients=8/tokens=32", 8, 32, []string{"a"}, nil},
		{"text/clients=1/tokens=1/prompt=2000", 1, 1, nil, slices.Repeat([]uint32{200}, 2000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var dir string
			r := newRig(b, setup{mode: "shm", idle: true, client: func(o *engine.Options) {
				o.Command = func(a engine.Address) *exec.Cmd { return standIn(a, dir) }
			}})
			dir, r.e = r.o.Dir, &enginetest.Engine{}
			defer func() { r.e = nil }()
			require.NoError(b, r.Start(r.ctx))
			r.ask(1, c.keys...)
			one := func() error {
				q, err := r.tryRequest(c.tokens, c.keys...)
				if err != nil {
					return err
				}
				if c.prompt != nil {
					q.Prompt = c.prompt
				}
				s, err := r.Generate(r.ctx, q)
				if err != nil {
					return err
				}
				_, err = s.Collect()
				return err
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := ownCPU()
			var wait sync.WaitGroup
			var next atomic.Int64
			for range c.clients {
				wait.Go(func() {
					for next.Add(1) <= int64(b.N) {
						if err := one(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(ownCPU()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// ownCPU returns the nanoseconds that this process has used in user and system mode.
func ownCPU() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // can't fail
	return u.Utime.Nano() + u.Stime.Nano()
}
