//go:build linux

package daemon

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/tracing"
)

// BenchmarkPinRelease is what a lookup and its end cost a client: two requests over the socket.
func BenchmarkPinRelease(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprint("clients=", clients), func(t *testing.B) {
			b := newBed(t, func(b *bed) { b.mo.MaxLeases = 256 })
			b.hello(session1).store(b, "a")
			peers := make(chan *peer, 2*clients)
			for i := range 2 * clients { // as many goroutines, if there are two processors
				peers <- b.hello(fmt.Sprint("session-of-bench-", i))
			}
			t.SetParallelism(max(1, 2*clients/runtime.GOMAXPROCS(0)))
			t.ReportAllocs()
			t.ResetTimer()
			t.RunParallel(func(pb *testing.PB) {
				p := <-peers
				defer func() { peers <- p }()
				for pb.Next() {
					p.pin("l", "a")
					p.release("l")
				}
			})
		})
	}
}

// BenchmarkPinMany is a lookup of 64 objects and its end.
func BenchmarkPinMany(t *testing.B) {
	b := newBed(t, func(b *bed) {})
	p := b.hello(session1)
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf("%032x", i)
		p.store(b, names[i])
	}
	t.ReportAllocs()
	t.ResetTimer()
	for range t.N {
		p.pin("l", names...)
		p.release("l")
	}
}

// BenchmarkTraces is PinRelease of one client, without spans, with one request in a hundred, and with each.
func BenchmarkTraces(b *testing.B) {
	for _, oneIn := range []int{0, 100, 1} {
		b.Run(fmt.Sprint("one-in=", oneIn), func(t *testing.B) {
			b := newBed(t, func(*bed) {})
			if oneIn > 0 {
				tracer, err := tracing.Open(t.Context(), tracing.Options{URL: collectSpans(t).URL, OneIn: oneIn, Logger: quiet()})
				require.NoError(t, err)
				defer tracer.Close()
				b.server.tracer = tracer
			}
			p := b.hello(session1)
			p.store(b, "a")
			t.ReportAllocs()
			t.ResetTimer()
			for range t.N {
				p.pin("l", "a")
				p.release("l")
			}
		})
	}
}
