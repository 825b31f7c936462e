package lrusync_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
)

func TestDriftIsNoticedAtTheNextRequest(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	apply := func(lose bool, keys ...string) lrusync.Result[int64] {
		var items []lrusync.Item
		for _, k := range keys {
			items = append(items, lrusync.Item{Key: k, Size: 4, HasData: true})
		}
		tk, err := p.Send(ctx, items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		if lose {
			return lrusync.Result[int64]{}
		}
		res, err := p.r.Receive(tk.Envelope, features(items, tk))
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
		tk, err := s.Send(ctx, items, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		res, err := p.r.Receive(tk.Envelope, features(items, tk))
		require.NoError(t, err)
		return res
	}
	for range 3 {
		send(p.Sender, lrusync.Item{Key: "a", Size: 4, HasData: true}, lrusync.Item{Key: "b", Size: 4, HasData: true})
	}
	old := p.Sender
	p.Sender, _ = lrusync.NewSender(lrusync.Options{Capacity: 10})
	res := send(p.Sender, lrusync.Item{Key: "c", Size: 4, HasData: true})
	require.Nil(t, res.Drift)
	p.requireEqual(t)

	res = send(old, lrusync.Item{Key: "a", Size: 4, HasData: true})
	require.Nil(t, res.Drift, "what the old one still has under way changes nothing")
	require.Equal(t, []string{"a"}, res.Missing)
	p.requireEqual(t)
}

// Frontends were restarted twice, and the first one's last request comes late.
func TestStragglerOfAnOlderSender(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	item := []lrusync.Item{{Key: "a", Size: 4, HasData: true}}
	deliver := func(s *lrusync.Sender) lrusync.Result[int64] {
		tk, err := s.Send(ctx, item, func(lrusync.Ticket) error { return nil })
		require.NoError(t, err)
		res, err := p.r.Receive(tk.Envelope, features(item, tk))
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
	item = []lrusync.Item{{Key: "b", Size: 4, HasData: true}}
	require.Nil(t, deliver(p.Sender).Drift)
	p.requireEqual(t)
}

// vLLM's sender sends no envelopes. What it left is cleared when a Sender takes
// over.
func TestReceiverOfAPlainSender(t *testing.T) {
	p := newPair(t, lrusync.Options{Capacity: 10})
	plain := func(want lrusync.Result[int64], fs ...lrusync.Feature[int64]) {
		t.Helper()
		res, err := p.r.Receive(lrusync.Envelope{}, fs)
		require.NoError(t, err)
		require.Equal(t, want, res)
	}
	a := lrusync.Feature[int64]{Key: "a", HasData: true, Value: 4, Size: 4}
	named := lrusync.Feature[int64]{Key: "a"}
	plain(lrusync.Result[int64]{Values: []int64{0}, Missing: []string{"a"}}, named)
	plain(lrusync.Result[int64]{Values: []int64{4, 4}}, a, named)
	p.r.Clear(lrusync.Envelope{})
	plain(lrusync.Result[int64]{Values: []int64{0}, Missing: []string{"a"}}, named)
	plain(lrusync.Result[int64]{Values: []int64{4}}, a)

	items := []lrusync.Item{{Key: "b", Size: 3, HasData: true}}
	tk, err := p.Send(ctx, items, queue)
	require.NoError(t, err)
	res, err := p.r.Receive(tk.Envelope, features(items, tk))
	require.NoError(t, err)
	require.Equal(t, lrusync.Result[int64]{Values: []int64{3}}, res)
	p.requireEqual(t)
}
