package objstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkPut puts and finishes objects in a real segment that is always full.
// The pool's price is the checksum, and looking for what to evict.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10, 4 << 20} {
		for _, k := range kinds {
			b.Run(fmt.Sprintf("%v/%dKiB", k, size>>10), func(b *testing.B) {
				w, err := k.create(Options{
					Name: fmt.Sprintf("ringcache-bench-%d", os.Getpid()), RingSize: 64 << 20, MaxObjectSize: 8 << 20, Readers: 1,
				})
				require.NoError(b, err)
				defer func() { require.NoError(b, w.Close()) }()
				it := bytesItem(size)
				put := func(i int) {
					r, _ := w.Begin("r")
					if _, err := r.Put(fmt.Sprint(i), it, PutOptions{}); err != nil {
						b.Fatal(err)
					}
					r.Rollback() // as if it was read by everyone
				}
				for i := range 2 * (64 << 20) / size {
					put(-i - 1)
				}
				b.SetBytes(int64(size))
				for i := 0; b.Loop(); i++ {
					put(i)
				}
			})
		}
	}
}

// BenchmarkRequest is a request with one image, from Begin to Finish: new puts it, and
// repeat has it in the store.
func BenchmarkRequest(b *testing.B) {
	for _, k := range kinds {
		for _, size := range []int{4 << 10, 64 << 10} {
			s := newStoreOf(b, k, Options{RingSize: 16 << 20, MaxObjectSize: 1 << 20, Readers: 1})
			it := bytesItem(size)
			run := func(key string) error {
				r, err := s.Begin("r")
				if err != nil {
					return err
				}
				defer r.Rollback()
				if _, err = r.Lookup(key); errors.Is(err, ErrNotFound) {
					_, err = r.Put(key, it, PutOptions{})
				}
				if err != nil {
					return err
				}
				if err := r.Commit(); err != nil {
					return err
				}
				r.Finish()
				return nil
			}
			read := func(key string) { // so that a FIFO can free it
				if k == fifo {
					h, ok, err := s.in.current(key)
					if err != nil || !ok {
						b.Fatal(ok, err)
					}
					s.readAll(b, h, key)
				}
			}
			b.Run(fmt.Sprintf("%v/new/%dKiB", k, size>>10), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					key := fmt.Sprint(b.N, "/", i)
					if err := run(key); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					read(key)
					b.StartTimer()
				}
			})
			b.Run(fmt.Sprintf("%v/repeat/%dKiB", k, size>>10), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := run("repeat"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkGet is a view from Get to Release in a reader that counts, with a slot and
// without.
func BenchmarkGet(b *testing.B) {
	for _, k := range kinds {
		for _, size := range []int{4 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%v/%dKiB", k, size>>10), func(b *testing.B) {
				o := Options{
					Name: fmt.Sprintf("ringcache-bench-get-%d", os.Getpid()), RingSize: 4 << 20, MaxObjectSize: 2 << 20, Readers: 1,
				}
				w, err := k.create(o)
				require.NoError(b, err)
				defer func() { require.NoError(b, w.Abandon()) }()
				r, err := Open(o.Name, ReaderOptions{RingSize: o.RingSize, Readers: 1, SidecarLock: true})
				require.NoError(b, err)
				defer func() { require.NoError(b, r.Close()) }()
				h, err := begin(b, w, "r").Put("a", bytesItem(size))
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					v, err := r.Get("a", h)
					if err != nil {
						b.Fatal(err)
					}
					if err := v.Release(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkStored is what it costs to look at an object in the way of a worker
// before its handle is sent.
func BenchmarkStored(b *testing.B) {
	s := newStoreOf(b, pool, Options{RingSize: 1 << 20, MaxObjectSize: 1 << 19, Readers: 1})
	r := putHeld(b, s, "a", 37_632)
	defer r.Rollback()
	h, err := r.Lookup("a")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Stored(h); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkView is a view from Get to Release, in a reader that neither counts nor
// has a slot.
func BenchmarkView(b *testing.B) {
	s := newStore(b, Options{RingSize: 1 << 20, MaxObjectSize: 1 << 19, Readers: 1})
	h, err := s.Put("a", image(37_632, 1))
	require.NoError(b, err)
	r := s.readers[0]
	r.counter = nil
	b.ReportAllocs()
	for b.Loop() {
		v, err := r.Get("a", h)
		if err != nil {
			b.Fatal(err)
		}
		if err := v.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFull is what calls cost in a pool of 28,000 objects that has no room:
// hits without and with callers that wait for room, a put that is refused, and the
// questions of an operator.
func BenchmarkFull(b *testing.B) {
	for _, aborted := range []bool{false, true} {
		s := newPoolStore(b, Options{RingSize: 14 << 20, Readers: 1, MaxObjects: 1 << 16, QuarantineTTL: -1})
		all := begin(b, s, "all")
		n := fill(b, all, 256)
		if err := all.Commit(); err != nil {
			b.Fatal(err)
		}
		state := "leased"
		if aborted {
			all.Abort()
			state = "quarantined"
		}
		run := func(name string, f func(i int)) {
			b.Run(fmt.Sprintf("%s/%d %s", name, n, state), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					f(i)
				}
			})
		}
		hit := func(i int) {
			r, err := s.Begin("hit")
			if err != nil {
				b.Fatal(err)
			}
			if _, err = r.Lookup(fmt.Sprint("k", i%n)); err != nil {
				b.Fatal(err)
			}
			if err = r.Commit(); err != nil {
				b.Fatal(err)
			}
			r.Finish()
		}
		run("hit", hit)
		ctx, cancel := context.WithCancel(context.Background())
		var done []<-chan error
		waiters := begin(b, s, "waiters")
		for i := range 64 {
			done = append(done, startWaiter(b, s, ctx, waiters, fmt.Sprint("waiter", i), 100_000, PutOptions{}))
		}
		run("hit, 64 waiters", hit)
		cancel()
		for _, d := range done {
			if err := answer(b, d); !errors.Is(err, context.Canceled) {
				b.Fatal(err)
			}
		}
		waiters.Rollback()
		large := bytesItem(100_000)
		run("refused Put", func(int) {
			if _, err := s.Put("refused", large); !errors.Is(err, ErrFull) {
				b.Fatal(err)
			}
		})
		run("Stats", func(int) {
			if _, err := s.Stats(); err != nil {
				b.Fatal(err)
			}
		})
		run("State", func(int) {
			if _, err := s.State(); err != nil {
				b.Fatal(err)
			}
		})
		run("Fence", func(int) { s.Fence() })
		all.Finish()
		s.Fence().Passed()
	}
}
