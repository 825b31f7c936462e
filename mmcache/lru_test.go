package mmcache_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
)

// The engine restarted and lost everything: who asks it for an item it had gets
// it, from the frontend's producer, and nobody notices.
func TestMissedIsSentAgain(t *testing.T) {
	for _, repair := range []bool{false, true} {
		t.Run(fmt.Sprint("repair ", repair), func(t *testing.T) {
			c := openMirrored(t, mmcache.Options{Capacity: 4096})
			r, b := run(t, c, 100, "a")
			require.Empty(t, newEngine(t, 4096).take(b).Missing)
			r.Finish()

			e := newEngine(t, 4096)
			r, err := c.Begin(ctx, "again", want(100, "a", "b")...)
			require.NoError(t, err)
			made := 0
			for _, k := range []string{"a", "b"} {
				_, err := r.Item(ctx, k, func(ctx context.Context, b *mmcache.Builder) error {
					made++
					return produceItem(k, 100)(ctx, b)
				})
				require.NoError(t, err)
			}
			before := made
			var missing []string
			var drift *lrusync.Drift
			send := func(b mmcache.Batch) error {
				got := e.take(b)
				missing, drift = got.Missing, got.Drift
				if missing == nil {
					for i, w := range b.Items {
						assertContent(t, w.Key, got.Values[i])
					}
				}
				return nil
			}
			require.NoError(t, r.Commit(ctx, send))
			require.Contains(t, missing, "a")
			require.NotNil(t, drift)
			if repair {
				require.True(t, c.Repair(*drift))
			}
			require.NoError(t, r.Missed(ctx, missing, send))
			require.Greater(t, made, before, "the frontend had no copy")
			if missing != nil { // without Repair the second time sends everything
				require.NoError(t, r.Missed(ctx, missing, send))
			}
			require.Empty(t, missing)
			r.Finish()
		})
	}
}

// Between the look and the commit the engine dropped the item: it is made then,
// within Commit.
func TestEvictedBeforeCommit(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "lru", Capacity: 250})
	e := newEngine(t, 250)
	deliver := func(b mmcache.Batch) error {
		res := e.take(b)
		require.Empty(t, res.Missing)
		require.Nil(t, res.Drift)
		return nil
	}
	r, b := run(t, c, 100, "a")
	require.NoError(t, deliver(b))
	r.Finish()
	slow, err := c.Begin(ctx, "slow", want(100, "a")...)
	require.NoError(t, err)
	it, err := slow.Item(ctx, "a", produceItem("a", 100))
	require.NoError(t, err)
	require.True(t, it.Hit)
	quick, b := run(t, c, 100, "b", "c")
	require.NoError(t, deliver(b))
	quick.Finish()
	require.NoError(t, slow.Commit(ctx, func(b mmcache.Batch) error {
		require.Equal(t, inData, form(b.Items[0]))
		return deliver(b)
	}))
	slow.Finish()
}

// Modalities are interleaved in the prompt: both ends follow the positions.
func TestSeveralModalitiesDoNotDrift(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "lru", Capacity: 350})
	e := newEngine(t, 350)
	for _, keys := range [][]string{{"audio1", "image1", "image2"}, {"image3"}, {"image1", "audio1"}, {"image2", "audio2", "image4"}, {"audio1", "image1"}} {
		r, b := run(t, c, 100, keys...)
		res := e.take(b)
		require.Empty(t, res.Missing)
		require.Nil(t, res.Drift)
		r.Finish()
		var ours []string
		for k := range c.Keys() {
			ours = append(ours, k)
		}
		theirs, _ := e.receiver.Contents()
		require.Len(t, ours, len(theirs))
		for i, k := range theirs {
			require.Equal(t, k.Key, ours[i])
		}
	}
}

// Who follows the events can list what is cached.
func TestEventsTellWhatIsCached(t *testing.T) {
	for _, m := range []string{"processor_only", "lru", "shm"} {
		t.Run(m, func(t *testing.T) {
			c := openCache(t, mmcache.Options{Mode: m, Capacity: 1000, Shared: mmcache.SharedOptions{MaxObject: 900}})
			events, stop := c.Subscribe(100)
			known := map[string]bool{}
			for i := range 20 {
				k := string(rune('a' + i%5))
				r, err := c.Begin(ctx, "r", want(350, k)...)
				require.NoError(t, err)
				_, err = r.Item(ctx, k, produceItem(k, 350))
				require.NoError(t, err)
				if m == "lru" {
					require.NoError(t, r.Commit(ctx, sent))
				}
				r.Rollback()
				r.Finish()
			}
			stop()
			stop()
			for ev := range events {
				switch ev.Kind {
				case "added":
					require.False(t, known[ev.Key])
					known[ev.Key] = true
				case "evicted":
					require.True(t, known[ev.Key])
					delete(known, ev.Key)
				default:
					t.Errorf("unexpected %s of %q", ev.Kind, ev.Key)
				}
			}
			var cached []string
			for k := range c.Keys() {
				cached = append(cached, k)
				require.True(t, known[k])
			}
			require.Len(t, known, len(cached))
		})
	}
}

// A subscriber that does not read holds up nobody, and learns what it missed.
func TestSlowSubscriber(t *testing.T) {
	c := openCache(t, mmcache.Options{Mode: "processor_only", Capacity: 250})
	events, stop := c.Subscribe(1)
	defer stop()
	for _, k := range []string{"a", "b", "c", "d"} {
		r, _ := run(t, c, 100, k)
		r.Finish()
	}
	require.Equal(t, mmcache.Event{Kind: "added", Key: "a"}, <-events)
	r, _ := run(t, c, 100, "e")
	r.Finish()
	require.Equal(t, mmcache.Event{Kind: "lost", Lost: 5}, <-events)
}
