package mmcache_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
)

// Another content under a key, which silently loses against the cached one, is
// reported where that is asked for.
func TestVerifyHitsReportsAnotherContent(t *testing.T) {
	for _, verify := range []bool{false, true} {
		forEachMode(t, mmcache.Options{Capacity: 1 << 20, VerifyHits: verify}, func(t *testing.T, c mmcache.Cache) {
			made := 0
			request := func(p mmcache.Producer) {
				r := begin(t, c, "a")
				for range 2 {
					_, err := r.Item(ctx, "a", func(ctx context.Context, b *mmcache.Builder) error { made++; return p(ctx, b) })
					require.NoError(t, err)
				}
				require.NoError(t, r.Commit(ctx, sent))
				r.Finish()
			}
			request(produceItem("a", 100))
			request(produceItem("a", 100))
			require.Zero(t, c.Stats().Changed)
			request(func(_ context.Context, b *mmcache.Builder) error {
				err := b.Layout(layout(100), []byte("a"))
				copy(b.Tensor("pixel_values"), content("b", 100))
				return err
			})
			if !verify {
				require.Zero(t, c.Stats().Changed)
				return
			}
			require.EqualValues(t, 1, c.Stats().Changed)
			require.Equal(t, 3, made, "once for each request")
		})
	}
}
