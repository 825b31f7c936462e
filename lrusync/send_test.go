package lrusync_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

// Without drift reports, as with a vLLM engine: its miss answer is all there is.
func TestMissAnswerRepairs(t *testing.T) {
	for _, v := range []string{"0.28.0", "0.30.0", "0.31.0", "0.33.0"} {
		t.Run(v, func(t *testing.T) {
			g, err := pycompat.Lookup(v)
			require.NoError(t, err)
			rapid.Check(t, func(r *rapid.T) {
				p := newPair(r, lrusync.Options{Capacity: 40, Generation: g})
				for range rapid.IntRange(1, 100).Draw(r, "requests") {
					items := randomItems(r, 12, 9, true)
					for attempt := 0; ; attempt++ {
						require.Less(r, attempt, 3)
						tk, err := p.Send(ctx, items, func(lrusync.Ticket) error { return nil })
						require.NoError(r, err)
						if rapid.IntRange(0, 9).Draw(r, "lose") == 0 && attempt == 0 {
							break
						}
						res, err := p.r.Receive(lrusync.Envelope{}, features(items, tk))
						require.NoError(r, err)
						require.Nil(r, res.Drift)
						if res.Missing != nil {
							p.Missed(tk.Envelope, res.Missing)
							for i := range items {
								items[i].Fresh = items[i].Fresh || attempt > 0
							}
							continue
						}
						for i, it := range items {
							require.Equal(r, it.Size, res.Values[i])
						}
						break
					}
					require.NoError(r, p.CheckStructure())
				}
			})
		})
	}
}

func TestMissedKeepsWhatWentOutSince(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	send := func(keys ...string) lrusync.Ticket {
		var items []lrusync.Item
		for _, k := range keys {
			items = append(items, lrusync.Item{Key: k, Size: 1, HasData: true})
		}
		tk, err := p.Send(ctx, items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		return tk
	}
	send("a")
	first, second := send("a"), send("a")
	require.Equal(t, []bool{true}, first.Omit)
	p.Missed(first.Envelope, []string{"a"})
	require.Equal(t, []bool{false}, send("a").Omit, "sent again")
	p.Missed(second.Envelope, []string{"a"})
	require.Equal(t, []bool{true}, send("a").Omit, "what the second missed is there by now")
}

func TestRenewSendsTheDataAgain(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	one := []lrusync.Item{{Key: "a", Size: 1, HasData: true, Updates: []byte("old")}}
	tk, err := p.Send(ctx, one, func(lrusync.Ticket) error { return nil })
	require.NoError(t, err)
	_, err = p.r.Receive(tk.Envelope, features(one, tk))
	require.NoError(t, err)
	p.Renew("a")
	require.Equal(t, []bool{false}, cached(p.Sender, "a"))
	_, err = p.Send(ctx, []lrusync.Item{{Key: "a"}}, func(lrusync.Ticket) error { return nil })
	var need *lrusync.NeedDataError
	require.ErrorAs(t, err, &need)
	require.Equal(t, []string{"a"}, need.Keys)
	one[0].Updates = []byte("new")
	tk, err = p.Send(ctx, one, func(lrusync.Ticket) error { return nil })
	require.NoError(t, err)
	require.Equal(t, []bool{false}, tk.Omit)
	res, err := p.r.Receive(tk.Envelope, features(one, tk))
	require.NoError(t, err)
	require.Nil(t, res.Drift)
	updates, size, ok := p.Lookup("a")
	require.True(t, ok)
	require.Equal(t, int64(1), size)
	require.Equal(t, "new", string(updates))
	p.requireEqual(t)
}

func TestPanicInEnqueueLeavesNothing(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	require.Panics(t, func() {
		_, _ = p.Send(ctx, []lrusync.Item{{Key: "a", Size: 1, HasData: true}}, func(lrusync.Ticket) error { panic("socket") })
	})
	p.requireEqual(t)
	require.Equal(t, lrusync.Stats{}, p.Stats())
	require.Equal(t, []bool{false}, cached(p.Sender, "a"))
}

// The same by tickets.
func TestUpstreamCacheEvictionLRUCacheSend(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 6})
	send := func(items ...lrusync.Item) lrusync.Ticket {
		tk, err := p.Send(ctx, items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		_, err = p.r.Receive(tk.Envelope, features(items, tk))
		require.NoError(t, err)
		p.requireEqual(t)
		return tk
	}
	it := func(key string, size int64, have bool) lrusync.Item {
		return lrusync.Item{Key: key, Size: size, HasData: have}
	}
	send(it("A", 2, true), it("B", 2, true), it("C", 2, true))
	tk := send(it("D", 1, true), it("E", 1, true), it("A", 2, false), it("C", 2, false))
	require.Equal(t, []bool{false, false, true, true}, tk.Omit)
	require.Equal(t, []string{"B"}, tk.Evicted)
	require.Equal(t, []string{"D", "E", "A", "C"}, keysOf(p.Contents()))
}

// Sleeping forgets the items at both ends; upstream once forgot them at the
// engine's only.
func TestUpstreamSleepWakePreservesMMCacheConsistency(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 100})
	image := []lrusync.Item{{Key: "image", Size: 10, HasData: true}}
	ask := func(want bool) {
		t.Helper()
		tk, err := p.Send(ctx, image, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		require.Equal(t, []bool{want}, tk.Omit)
		res, err := p.r.Receive(tk.Envelope, features(image, tk))
		require.NoError(t, err)
		require.Equal(t, lrusync.Result[int64]{Values: []int64{10}}, res)
		p.requireEqual(t)
	}
	ask(false)
	ask(true)
	require.NoError(t, p.Clear(ctx, func(e lrusync.Envelope) error { p.r.Clear(e); return nil }))
	p.requireEqual(t)
	require.Empty(t, keysOf(p.Contents()))
	ask(false)
	ask(true)
}
