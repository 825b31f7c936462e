package tier_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestWorkIsTold: calls of lower levels in the background, with what became of the objects.
func TestWorkIsTold(t *testing.T) {
	in(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []tier.Work
		b := newBed(t, 1<<20, func(o *tier.Options) {
			o.Work = func(w tier.Work) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, w)
			}
		})
		take := func() []tier.Work {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := told
			told = nil
			for i := range out {
				require.False(t, out[i].Begin.IsZero())
				out[i].Begin = time.Time{} // the clock stands still
			}
			slices.SortStableFunc(out, func(x, y tier.Work) int {
				return slices.Index([]string{"disk", "remote"}, x.Level) - slices.Index([]string{"disk", "remote"}, y.Level)
			})
			return out
		}
		require.NoError(t, put(b.Store, "x", "", 10))
		require.Equal(t, []tier.Work{
			{Kind: "write back", Level: "disk", Keys: keys("x"), Done: 1, Bytes: 10},
			{Kind: "write back", Level: "remote", Keys: keys("x"), Done: 1, Bytes: 10},
		}, take())

		require.NoError(t, put(b.maps[1], "y", "", 20))
		l, err := b.Lease(t.Context(), tier.LeaseOptions{ID: "lease", Until: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		l.Pin(keys("y", "nowhere"))
		require.Equal(t, []tier.Work{
			{Kind: "look up", Level: "disk", Keys: keys("y", "nowhere")},
			{Kind: "look up", Level: "remote", Keys: keys("y", "nowhere"), Done: 1},
			{Kind: "fetch", Level: "remote", Keys: keys("y"), Done: 1, Bytes: 20},
		}, take())
		l.Release()

		b.disk.Fail(tier.ErrUnavailable)
		require.NoError(t, put(b.Store, "z", "", 10))
		failed := take()
		require.Equal(t, "disk", failed[0].Level)
		require.ErrorIs(t, failed[0].Err, tier.ErrUnavailable)
		require.Zero(t, failed[0].Done)
		b.disk.Fail(nil)
		_, err = b.Drain(t.Context())
		require.NoError(t, err)
	})
}

// TestWorkThatNobodyWantsCostsNothing.
func TestWorkThatNobodyWantsCostsNothing(t *testing.T) {
	b := newBed(t, 1<<20, nil)
	require.Zero(t, tier.AllocsOfWork(b.Store))
}
