package shmstore_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

// Objects of which somebody claimed absurd costs give way to those that are used, also in the next process, and also if
// they were put by a release that believed every cost.
func TestCostPoison(t *testing.T) {
	for _, tenants := range [][2]string{{"", ""}, {"hostile", "honest"}} {
		for _, cost := range []time.Duration{0, time.Hour, math.MaxInt64} {
			t.Run(fmt.Sprint(tenants, cost), func(t *testing.T) {
				s, o := inFolder(t, shmstore.Options{Size: 64 << 10, QuarantineTTL: -1})
				const size, room = 900, 64
				store := func(key, tenant string, cost time.Duration) {
					r := begin(t, s, "of "+key)
					defer r.Rollback()
					res, err := r.Reserve(key, size, shmstore.PutOptions{Tenant: tenant})
					require.NoError(t, err)
					defer res.Discard()
					if cost > 0 {
						res.SetCost(cost)
					}
					_, err = res.Commit(1)
					require.NoError(t, err)
				}
				poison := func(name string) {
					for i := range 2 * room {
						store(fmt.Sprint(name, i), tenants[0], cost)
					}
				}
				// honest asks for a working set of half of the memory until all of it is there.
				honest := func(name string) {
					missed := 0
					for rounds := 0; ; rounds++ {
						require.Less(t, rounds, 20)
						before := missed
						for i := range room / 2 {
							key := fmt.Sprint(name, i)
							r := begin(t, s, "hit")
							if _, err := r.Lookup(key, 1); err != nil {
								require.ErrorIs(t, err, shmstore.ErrNotFound)
								missed++
								store(key, tenants[1], 50*time.Millisecond)
							}
							r.Rollback()
						}
						if missed == before {
							break
						}
					}
					require.LessOrEqual(t, missed, 2*room, "misses until the working set is there")
				}
				poison("poison ")
				honest("a")
				poison("more poison ")
				require.NoError(t, s.Yield())
				var err error
				s, _, err = shmstore.Adopt(o)
				require.NoError(t, err)
				ends(t, s)
				honest("b")
			})
		}
	}
}
