package mmcache_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/objstore"
)

// An item that finds no room is announced as refused, for the reason that its request
// gets, and counted.
func TestRefusedItemsAreAnnounced(t *testing.T) {
	for _, m := range []string{"processor_only", "shm"} {
		t.Run(m, func(t *testing.T) {
			c := openCache(t, mmcache.Options{Mode: m, Capacity: 1500, Shared: mmcache.SharedOptions{MaxObject: 1400}})
			first, _ := run(t, c, 700, "a")
			events, stop := c.Subscribe(10)
			defer stop()
			second, b := run(t, c, 1200, "b")
			require.Equal(t, inData, form(b.Items[0]))
			require.Len(t, events, 1)
			ev := <-events
			require.ErrorIs(t, ev.Refused, objstore.ErrFull)
			require.Equal(t, mmcache.Event{Kind: "refused", Key: "b", Refused: ev.Refused}, ev)
			require.EqualValues(t, 1, c.Stats().RefusedFull)
			second.Finish()
			first.Finish()
		})
	}
}

// While a request uses an item that was invalidated, there is no place for another one
// under its key.
func TestInvalidatedItemInUseIsAReasonOfItsOwn(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "processor_only", Capacity: 1 << 20})
	first, _ := run(t, c, 100, "a")
	require.True(t, c.Invalidate("a"))
	events, stop := c.Subscribe(10)
	defer stop()
	second, err := c.Begin(ctx, "second", want(100, "a")...)
	require.NoError(t, err)
	it, err := second.Item(ctx, "a", produceItem("a", 100))
	require.NoError(t, err)
	require.False(t, it.Hit)
	require.ErrorIs(t, it.Refused, objstore.ErrKeyExists)
	require.Equal(t, mmcache.Event{Kind: "refused", Key: "a", Refused: it.Refused}, <-events)
	require.EqualValues(t, 1, c.Stats().RefusedInUse)
	second.Rollback()
	first.Finish()
}
