package mmcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

// An item that a repair took back in the middle of its send is not announced.
func TestEventsAfterARepairWithinASend(t *testing.T) {
	c := openMirrored(t, mmcache.Options{Capacity: 1 << 20})
	first, b := run(t, c, 100, "a")
	first.Finish()
	ev, end := c.Subscribe(100)
	defer end()
	r := begin(t, c, "b")
	_, err := r.Item(ctx, "b", produceItem("b", 100))
	require.NoError(t, err)
	require.NoError(t, r.Commit(ctx, func(mmcache.Batch) error {
		require.True(t, c.Repair(lrusync.Drift{Sender: b.Envelope.Sender, Epoch: b.Envelope.Epoch}))
		return nil
	}))
	r.Finish()
	have := map[string]bool{}
	requireTruth(t, c, ev, have)
}

// Two requests missed one item: the engine has it after the first was sent again.
func TestEventsOfTwoMisses(t *testing.T) {
	c := openMirrored(t, mmcache.Options{Capacity: 1 << 20})
	first, _ := run(t, c, 100, "a")
	first.Finish()
	ev, end := c.Subscribe(100)
	defer end()
	have := map[string]bool{"a": true}
	r2, r3 := begin(t, c, "a"), begin(t, c, "a")
	for _, r := range []*mmcache.Request{r2, r3} {
		_, err := r.Item(ctx, "a", produceItem("a", 100))
		require.NoError(t, err)
		require.NoError(t, r.Commit(ctx, sent))
	}
	for _, r := range []*mmcache.Request{r2, r3} {
		require.NoError(t, r.Missed(ctx, []string{"a"}, sent))
		r.Finish()
	}
	requireTruth(t, c, ev, have)
}

// requireTruth applies the events so far to the keys that a subscriber knew, and
// compares the result with the cache.
func requireTruth(t *testing.T, c mmcache.Cache, ev <-chan mmcache.Event, have map[string]bool) {
	t.Helper()
	for len(ev) > 0 {
		switch e := <-ev; e.Kind {
		case "lost":
			clear(have)
		case "added":
			have[e.Key] = true
		case "evicted":
			delete(have, e.Key)
		}
	}
	truth := map[string]bool{}
	for k := range c.Keys() {
		truth[k] = true
	}
	require.Equal(t, truth, have)
}
