package lrusync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/pycompat"
)

// pair is a sender and a receiver with nothing lost in between. A value is its
// own size.
type pair struct {
	*lrusync.Sender
	r *lrusync.Receiver[int64]
}

func newPair(t require.TestingT, o lrusync.Options) pair {
	s, err := lrusync.NewSender(o)
	require.NoError(t, err)
	r, err := lrusync.NewReceiver[int64](o)
	require.NoError(t, err)
	return pair{s, r}
}

func features(items []lrusync.Item, t lrusync.Ticket) []lrusync.Feature[int64] {
	fs := make([]lrusync.Feature[int64], len(items))
	for i, it := range items {
		fs[i] = lrusync.Feature[int64]{Key: it.Key, Identifier: it.Key, Has: !t.Omit[i], Value: it.Size, Size: it.Size}
		if t.Omit[i] {
			fs[i].Value, fs[i].Size = 0, 0
		}
	}
	return fs
}

func (p pair) requireEqual(t require.TestingT, at ...any) {
	a, n := p.Contents()
	b, m := p.r.Contents()
	require.Equal(t, b, a, at...)
	require.Equal(t, m, n, at...)
	require.NoError(t, p.CheckStructure(), at...)
	require.NoError(t, p.r.CheckStructure(), at...)
}

func randomItems(r *rapid.T, keys int, largest int64, have bool) []lrusync.Item {
	n := rapid.IntRange(1, 5).Draw(r, "items")
	items := make([]lrusync.Item, n)
	for i := range items {
		k := rapid.IntRange(0, keys-1).Draw(r, "key")
		items[i] = lrusync.Item{
			Key: fmt.Sprint("k", k), Size: 1 + int64(k*7)%largest,
			Have: have || rapid.Bool().Draw(r, "have"), Fresh: rapid.IntRange(0, 9).Draw(r, "fresh") == 0,
		}
	}
	return items
}

// In every generation: what Send foresees is what the receiver does, nothing is
// ever missing, and a refused or failed request leaves no trace.
func TestSendForeseesTheReceiver(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				capacity := rapid.IntRange(8, 40).Draw(r, "capacity")
				p := newPair(r, lrusync.Options{Capacity: float64(capacity), Generation: g})
				for range rapid.IntRange(1, 60).Draw(r, "requests") {
					items := randomItems(r, 14, 12, false)
					before, _ := p.Contents()
					fail := rapid.IntRange(0, 9).Draw(r, "fail") == 0
					tk, err := p.Send(items, func(lrusync.Ticket) error {
						if fail {
							return errors.New("socket closed")
						}
						return nil
					})
					if err != nil {
						after, _ := p.Contents()
						require.Equal(r, before, after)
						var need *lrusync.NeedDataError
						if errors.As(err, &need) {
							for _, k := range need.Keys {
								require.True(r, slices.ContainsFunc(items, func(it lrusync.Item) bool { return it.Key == k && !it.Have }))
							}
						} else if !fail {
							require.True(r, errors.Is(err, lrusync.ErrTooLarge) && !g.Cache.PutIfFits ||
								errors.Is(err, lrusync.ErrGhost) && g.Cache.GhostTouch, "%v", err)
						}
						p.requireEqual(r)
						continue
					}
					res, err := p.r.Apply(tk.Envelope, features(items, tk))
					require.NoError(r, err)
					require.Nil(r, res.Drift)
					require.Empty(r, res.Missing)
					for i, it := range items {
						require.Equal(r, 1+int64(keyNumber(it.Key)*7)%12, res.Values[i])
					}
					after, _ := p.Contents()
					for _, k := range tk.Evicted {
						require.False(r, slices.ContainsFunc(after, func(e lrusync.KeySize) bool { return e.Key == k }))
					}
					p.requireEqual(r)
					if rapid.IntRange(0, 30).Draw(r, "barrier") == 0 {
						require.Error(r, p.Barrier(func(lrusync.Envelope) error { return errors.New("not sent") }))
						p.requireEqual(r)
						require.NoError(r, p.Barrier(func(e lrusync.Envelope) error { p.r.Reset(e); return nil }))
						p.requireEqual(r)
						require.Empty(r, after[len(after):])
					}
				}
			})
		})
	}
}

func keyNumber(key string) (n int) {
	_, _ = fmt.Sscanf(key, "k%d", &n)
	return n
}

// A network that loses and reorders requests between two ends of this package:
// every drift is noticed by the next request, repaired, and no request fails.
func TestDriftIsRepairedBetweenPeers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		requireNoFailure(r, rand.New(rand.NewPCG(seed, 1)), 200)
	})
}

type message struct {
	tk    lrusync.Ticket
	items []lrusync.Item
}

func requireNoFailure(t require.TestingT, rnd *rand.Rand, requests int) (drifts, resent int) {
	p := newPair(t, lrusync.Options{Capacity: 40})
	send := func(items []lrusync.Item) message {
		tk, err := p.Send(items, func(lrusync.Ticket) error { return nil })
		// What is made can push out what was thought to be there, so more may be
		// needed the next time.
		for need := (*lrusync.NeedDataError)(nil); errors.As(err, &need); {
			for i := range items {
				items[i].Have = items[i].Have || slices.Contains(need.Keys, items[i].Key)
			}
			tk, err = p.Send(items, func(lrusync.Ticket) error { return nil })
		}
		require.NoError(t, err)
		return message{tk, items}
	}
	// answer hands a request to the receiver and acts on what it says.
	var answer func(m message, depth int)
	answer = func(m message, depth int) {
		require.Less(t, depth, 4, "a request is sent again and again")
		res, err := p.r.Apply(m.tk.Envelope, features(m.items, m.tk))
		require.NoError(t, err)
		if res.Drift != nil {
			if p.Repair(*res.Drift) {
				drifts++
				p.requireEqual(t)
			}
		}
		if res.Missing == nil {
			for i, it := range m.items {
				require.Equal(t, it.Size, res.Values[i])
			}
			return
		}
		p.Missed(m.tk.Envelope, res.Missing)
		resent++
		answer(send(m.items), depth+1)
	}
	var queue []message
	for range requests {
		items := make([]lrusync.Item, 1+rnd.IntN(4))
		for i := range items {
			k := rnd.IntN(12)
			items[i] = lrusync.Item{Key: fmt.Sprint("k", k), Size: 1 + int64(k), Have: rnd.IntN(2) == 0}
		}
		queue = append(queue, send(items))
		switch rnd.IntN(8) {
		case 0: // lost; the client gives up waiting and asks again
			lost := queue[len(queue)-1]
			queue = append(queue[:len(queue)-1], send(lost.items))
		case 1: // overtaken
			i := rnd.IntN(len(queue))
			queue[i], queue[len(queue)-1] = queue[len(queue)-1], queue[i]
		case 2: // a restarted engine
			if rnd.IntN(10) == 0 {
				var err error
				p.r, err = lrusync.NewReceiver[int64](lrusync.Options{Capacity: 40})
				require.NoError(t, err)
			}
		case 3, 4, 5:
			for _, m := range queue {
				answer(m, 0)
			}
			queue = queue[:0]
		}
	}
	for _, m := range queue {
		answer(m, 0)
	}
	answer(send([]lrusync.Item{{Key: "k0", Size: 1, Have: true}}), 0)
	p.requireEqual(t, "drift was not noticed")
	return drifts, resent
}

// The test above must be able to fail: without repair its pair ends up unequal.
func TestDriftIsNoticedAtTheNextRequest(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	apply := func(lose bool, keys ...string) lrusync.Result[int64] {
		var items []lrusync.Item
		for _, k := range keys {
			items = append(items, lrusync.Item{Key: k, Size: 4, Have: true})
		}
		tk, err := p.Send(items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		if lose {
			return lrusync.Result[int64]{}
		}
		res, err := p.r.Apply(tk.Envelope, features(items, tk))
		require.NoError(t, err)
		return res
	}
	require.Nil(t, apply(false, "a").Drift)
	apply(true, "b")
	res := apply(false, "a", "c")
	require.NotNil(t, res.Drift, "a lost request must show at the next one")
	require.Empty(t, res.Missing, "which is served all the same: a was kept, c came with data")
	require.Equal(t, []lrusync.KeySize{{Key: "a", Size: 4}}, res.Drift.Contents)

	require.NotNil(t, apply(false, "a").Drift, "nothing is cached until the sender knows")
	require.True(t, p.Repair(*res.Drift))
	require.False(t, p.Repair(*res.Drift), "twice is once")
	require.Nil(t, apply(false, "c", "a").Drift)
	p.requireEqual(t)
}

// A new frontend process takes over an engine that is full of another's items.
func TestSenderRestartTakesOver(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	send := func(s *lrusync.Sender, items ...lrusync.Item) lrusync.Result[int64] {
		tk, err := s.Send(items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		res, err := p.r.Apply(tk.Envelope, features(items, tk))
		require.NoError(t, err)
		return res
	}
	for range 3 {
		send(p.Sender, lrusync.Item{Key: "a", Size: 4, Have: true}, lrusync.Item{Key: "b", Size: 4, Have: true})
	}
	old := p.Sender
	p.Sender, _ = lrusync.NewSender(lrusync.Options{Capacity: 10})
	res := send(p.Sender, lrusync.Item{Key: "c", Size: 4, Have: true})
	require.Nil(t, res.Drift)
	p.requireEqual(t)

	res = send(old, lrusync.Item{Key: "a", Size: 4, Have: true})
	require.Nil(t, res.Drift, "what the old one still has under way changes nothing")
	require.Equal(t, []string{"a"}, res.Missing)
	p.requireEqual(t)
}

// Frontends were restarted twice, and the first one's last request comes late.
func TestStragglerOfAnOlderSender(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	item := []lrusync.Item{{Key: "a", Size: 4, Have: true}}
	deliver := func(s *lrusync.Sender) lrusync.Result[int64] {
		tk, err := s.Send(item, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		res, err := p.r.Apply(tk.Envelope, features(item, tk))
		require.NoError(t, err)
		return res
	}
	first := p.Sender
	deliver(first)
	for range 2 {
		p.Sender, _ = lrusync.NewSender(lrusync.Options{Capacity: 10})
		require.Nil(t, deliver(p.Sender).Drift)
	}
	require.Nil(t, deliver(first).Drift)
	item = []lrusync.Item{{Key: "b", Size: 4, Have: true}}
	require.Nil(t, deliver(p.Sender).Drift)
	p.requireEqual(t)
}

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
						tk, err := p.Send(items, func(lrusync.Ticket) error { return nil })
						require.NoError(r, err)
						if rapid.IntRange(0, 9).Draw(r, "lose") == 0 && attempt == 0 {
							break
						}
						got, err := p.r.Features(features(items, tk))
						var miss *lrusync.MissError
						if errors.As(err, &miss) {
							p.Missed(tk.Envelope, miss.Keys)
							for i := range items {
								items[i].Fresh = items[i].Fresh || attempt > 0
							}
							continue
						}
						require.NoError(r, err)
						for i, it := range items {
							require.Equal(r, it.Size, got[i])
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
			items = append(items, lrusync.Item{Key: k, Size: 1, Have: true})
		}
		tk, err := p.Send(items, func(lrusync.Ticket) error { return nil })
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
	one := []lrusync.Item{{Key: "a", Size: 1, Have: true, Updates: []byte("old")}}
	tk, err := p.Send(one, func(lrusync.Ticket) error { return nil })
	require.NoError(t, err)
	_, err = p.r.Apply(tk.Envelope, features(one, tk))
	require.NoError(t, err)
	p.Renew("a")
	require.Equal(t, []bool{false}, p.Cached("a"))
	_, err = p.Send([]lrusync.Item{{Key: "a"}}, func(lrusync.Ticket) error { return nil })
	require.ErrorIs(t, err, lrusync.ErrNeedData)
	one[0].Updates = []byte("new")
	tk, err = p.Send(one, func(lrusync.Ticket) error { return nil })
	require.NoError(t, err)
	require.Equal(t, []bool{false}, tk.Omit)
	res, err := p.r.Apply(tk.Envelope, features(one, tk))
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
		_, _ = p.Send([]lrusync.Item{{Key: "a", Size: 1, Have: true}}, func(lrusync.Ticket) error { panic("socket") })
	})
	p.requireEqual(t)
	require.Equal(t, lrusync.Stats{}, p.Stats(false))
	require.Equal(t, []bool{false}, p.Cached("a"))
}
