package tier_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestDrainReachesEveryLevelOfAStoreWithANewOne: objects are in memory and on the disk when a store is opened that has one more level.
// Whoever stores them again, by Put or under a lease, has them in that level, too.
func TestDrainReachesEveryLevelOfAStoreWithANewOne(t *testing.T) {
	for _, how := range []string{"bytes", "reader", "reader without room for debts", "lease"} {
		t.Run(how, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBed(t, 30_000, func(o *tier.Options) { o.Lower = o.Lower[:1] })
				names := make([]string, 100)
				for i := range names {
					names[i] = fmt.Sprint("o", i)
					require.NoError(t, put(b, names[i], "", 1000), "three times what memory has room for")
				}
				b.drain()
				require.NoError(t, b.Close())

				b.options.Lower = []tier.Lower{{Level: b.disk}, {Level: b.remote}}
				if how == "reader without room for debts" {
					b.options.MaxOwed = 1
				}
				b.open()
				written := 0
				b.disk.Do(func(c tiertest.Call) tiertest.Answer {
					if is(c, "Put") {
						written++
					}
					return tiertest.Answer{}
				})
				l := b.lease("client")
				above := 0
				slices.Reverse(names) // what memory has comes first
				for _, name := range names {
					if b.memory.Stat(t.Context(), keys(name))[0].Err == nil {
						above++
					}
					p := []tier.Put{{Object: object(name, "", 1000), Bytes: content(name, 1000)}}
					switch how {
					case "bytes":
						b.Put(t.Context(), p)
					case "lease":
						if p[0].Err = l.Reserve([]tier.Object{p[0].Object})[0].Err; p[0].Err == nil {
							require.NoError(t, l.Abort(keys(name))[0])
							b.store(l, name, "", 1000)
						} else {
							require.ErrorIs(t, p[0].Err, tier.ErrExists)
							p[0].Err = nil
						}
						l.Unpin(keys(name))
					default:
						p[0].From = bytes.NewReader(p[0].Bytes)
						p[0].Bytes = nil
						b.Put(t.Context(), p)
					}
					require.NoError(t, p[0].Err, name)
					b.drain()
				}
				require.NotZero(t, above)
				for _, name := range names {
					assert.Contains(t, b.has(name), "disk remote", name)
				}
				if how == "bytes" || how == "lease" {
					require.LessOrEqual(t, written, len(names)-above, "what the disk has is not written again")
				}
			})
		})
	}
}

// TestStoredAgainWhileItIsWritten: the level that has it in hand gets it once, and a level that is away when it comes back.
func TestStoredAgainWhileItIsWritten(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		b.remote.Fail(tier.ErrUnavailable)
		wait := make(chan struct{})
		written := 0
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Put") {
				written++
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		for range 3 {
			require.NoError(t, put(b, "x", "", 1000))
			require.Equal(t, int64(1000), b.State().OwedBytes, "it is owed once")
			require.Empty(t, tier.Check(b.Store))
		}
		close(wait)
		b.remote.Do(nil)
		b.drain()
		require.Equal(t, 1, written)
		require.Equal(t, "memory disk remote", b.has("x"))
		require.Zero(t, b.State().OwedBytes)
	})
}
