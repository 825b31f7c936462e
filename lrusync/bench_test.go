package lrusync_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/ringcache/ringcache/lrusync"
)

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%064d", i) // as long as a hash
	}
	return keys
}

// BenchmarkSend sends requests of several items, which the peer has, or which
// push out others.
func BenchmarkSend(b *testing.B) {
	const entries = 1000
	keys := benchKeys(2 * entries)
	for _, n := range []int{1, 8} {
		for name, span := range map[string]int{"hits": entries, "evictions": len(keys)} {
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) {
				s, err := lrusync.NewSender(lrusync.Options{Capacity: entries})
				if err != nil {
					b.Fatal(err)
				}
				items := make([]lrusync.Item, n)
				next := 0
				send := func() {
					for i := range items {
						items[i] = lrusync.Item{Key: keys[next%span], HasData: true, Size: 1}
						next++
					}
					if _, err := s.Send(ctx, items, queue); err != nil {
						b.Fatal(err)
					}
				}
				for next < span {
					send()
				}
				b.ReportAllocs()
				for b.Loop() {
					send()
				}
			})
		}
	}
}

// BenchmarkReceive receives a request of 8 items that are cached.
func BenchmarkReceive(b *testing.B) {
	r, err := lrusync.NewReceiver[int](lrusync.Options{Capacity: 1000})
	if err != nil {
		b.Fatal(err)
	}
	fs := make([]lrusync.Feature[int], 8)
	for i, k := range benchKeys(len(fs)) {
		fs[i] = lrusync.Feature[int]{Key: k, HasData: true, Size: 1}
	}
	if _, err := r.Receive(lrusync.Envelope{}, fs); err != nil {
		b.Fatal(err)
	}
	for i := range fs {
		fs[i].HasData = false
	}
	b.ReportAllocs()
	for b.Loop() {
		if res, err := r.Receive(lrusync.Envelope{}, fs); err != nil || res.Missing != nil {
			b.Fatal(err, res.Missing)
		}
	}
}
