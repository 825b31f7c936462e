package tier_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestDrainReachesEveryLevelOfAStoreWithANewOne: objects are in memory and on the disk when a store is opened
// that has one more level. Whoever stores them again, by Put or under a lease, has them in that level, too.
func TestDrainReachesEveryLevelOfAStoreWithANewOne(t *testing.T) {
	for _, how := range []string{"bytes", "reader", "reader without room for pending writes", "lease"} {
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
				if how == "reader without room for pending writes" {
					b.options.MaxBacklog = 1
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

// TestStoredAgainWhileItIsWritten: the level that has it in hand gets it once, and a level that is away when
// it comes back.
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
			require.Equal(t, int64(1000), b.State().BacklogBytes, "it is pending once")
			require.Empty(t, tier.Check(b.Store))
		}
		close(wait)
		b.remote.Do(nil)
		b.drain()
		require.Equal(t, 1, written)
		require.Equal(t, "memory disk remote", b.has("x"))
		require.Zero(t, b.State().BacklogBytes)
	})
}

// TestStoredAgainWhileALevelIsAway: objects that all levels have take nothing of the backlog, so new
// ones reach the level that is there, and the other one when it is back.
func TestStoredAgainWhileALevelIsAway(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 200_000, func(o *tier.Options) { o.MaxBacklog = 100_000 })
		names := func(what string, n int) (all []string) {
			for i := range n {
				all = append(all, fmt.Sprint(what, i))
			}
			return all
		}
		for _, name := range names("o", 100) {
			require.NoError(t, put(b, name, "", 1000))
		}
		b.drain()
		b.remote.Fail(tier.ErrUnavailable)
		l := b.lease("client")
		for range 2 { // before and after the store notices that it is away
			for _, name := range names("o", 100) {
				require.ErrorIs(t, l.Reserve([]tier.Object{object(name, "", 1000)})[0].Err, tier.ErrExists)
				require.NoError(t, put(b, name, "", 1000))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Zero(t, b.State().BacklogBytes)
			require.Zero(t, b.memory.Usage().Held, "nothing is pinned for it")
		}
		require.Empty(t, tier.Check(b.Store))
		for _, name := range names("new", 20) {
			b.store(l, name, "", 1000)
		}
		l.Unpin(keys(names("new", 20)...))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, name := range names("new", 20) {
			require.Equal(t, "memory disk", b.has(name))
		}
		b.remote.Do(nil)
		b.drain()
		for _, name := range slices.Concat(names("o", 100), names("new", 20)) {
			require.Equal(t, "memory disk remote", b.has(name))
		}
	})
}

// TestDrainOfMoreThanTheBacklogHolds: what is stored again in one go is in the new level after Drain, however
// much it is.
func TestDrainOfMoreThanTheBacklogHolds(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 200_000, func(o *tier.Options) { o.Lower, o.MaxBacklog = o.Lower[:1], 100_000 })
		var all []tier.Object
		for i := range 150 {
			all = append(all, object(fmt.Sprint("o", i), "", 1000))
			require.NoError(t, put(b, all[i].Key.Name, "", 1000))
		}
		b.drain()
		require.NoError(t, b.Close())
		b.options.Lower = []tier.Lower{{Level: b.disk}, {Level: b.remote}}
		b.open()
		for _, p := range b.lease("client").Reserve(all) {
			require.ErrorIs(t, p.Err, tier.ErrExists)
		}
		b.drain()
		for _, o := range all {
			require.Equal(t, "memory disk remote", b.has(o.Key.Name))
		}
	})
}

// TestDrainSaysWhatWasMissed: what was stored again, and went from memory before a level could be asked for
// it, may be missing there.
func TestDrainSaysWhatWasMissed(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 10_000, func(o *tier.Options) { o.Lower = o.Lower[:1] })
		require.NoError(t, put(b, "x", "", 1000))
		b.drain()
		require.NoError(t, b.Close())
		b.options.Lower = []tier.Lower{{Level: b.disk}, {Level: b.remote}}
		b.remote.Fail(tier.ErrUnavailable)
		b.open()
		require.NoError(t, put(b, "x", "", 1000), "again")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, tier.Check(b.Store))
		l := b.lease("client")
		for i := range 10 {
			b.store(l, fmt.Sprint("o", i), "", 1000)
			l.Unpin(keys(fmt.Sprint("o", i)))
		}
		require.Equal(t, "disk", b.has("x"), "memory has evicted it")
		b.remote.Do(nil)
		left, err := b.Drain(t.Context())
		require.ErrorContains(t, err, "1 objects that were stored again may be missing in lower levels")
		require.Empty(t, left)
		left, err = b.Drain(t.Context())
		require.NoError(t, err, "it is said once")
		require.Empty(t, left)
	})
}

// TestDrainSaysWhatTheBacklogHadNoRoomFor: what Put stored beyond the limits while its level was away is in memory
// alone, and Drain answered as if all were written.
func TestDrainSaysWhatTheBacklogHadNoRoomFor(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower, o.MaxBacklog = o.Lower[1:], 3000 })
		b.remote.Fail(tier.ErrUnavailable)
		require.Error(t, b.get("nowhere"))
		synctest.Wait()
		for i := range 5 {
			require.NoError(t, put(b, fmt.Sprint(i), "", 1000))
		}
		b.remote.Do(nil)
		left, err := b.Drain(t.Context())
		require.ErrorIs(t, err, tier.ErrFull)
		require.ErrorContains(t, err, "the backlog had no room for 2 writes")
		require.Empty(t, left)
		for i := range 5 {
			require.NoError(t, put(b, fmt.Sprint(i), "", 1000), "again")
		}
		b.drain()
		for i := range 5 {
			require.Equal(t, "memory remote", b.has(fmt.Sprint(i)))
		}
	})
}

// storeBurst stores 20 objects under a lease while both lower levels are away.
func (b *bed) storeBurst() *tier.StoreLease {
	b.t.Helper()
	b.disk.Fail(tier.ErrUnavailable)
	b.remote.Fail(tier.ErrUnavailable)
	l := b.lease("l")
	for i := range 20 {
		b.store(l, fmt.Sprint(i), "", 1000)
	}
	return l
}

// requireBurstWritten drains, and requires that both lower levels have what storeBurst stored.
func (b *bed) requireBurstWritten() {
	b.t.Helper()
	b.drain()
	for i := range 20 {
		require.Equal(b.t, "memory disk remote", b.has(fmt.Sprint(i)))
	}
}

// TestWhatTheBacklogHadNoRoomForIsWrittenLater: after a burst of commits, what was beyond the limits was in memory
// alone for ever, beside a disk that had nothing to do.
func TestWhatTheBacklogHadNoRoomForIsWrittenLater(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.MaxBacklog = 3000 })
		l := b.storeBurst()
		l.Release()
		synctest.Wait()
		require.Empty(t, tier.Check(b.Store))
		require.Equal(t, int64(3000), b.memory.Usage().Held, "the rest waits without a pin")
		b.disk.Do(nil)
		b.remote.Do(nil)
		b.requireBurstWritten()
	})
}

// TestCommittedBeyondTheLimitsBeforeAKill: what waited beyond the limits for its turn when the process was killed was
// in memory alone for ever, though a lease of a client had it pinned.
func TestCommittedBeyondTheLimitsBeforeAKill(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.MaxBacklog = 3000 })
		b.storeBurst()
		synctest.Wait()
		require.NoError(t, b.Close())
		b.disk.Do(nil)
		b.remote.Do(nil)
		b.open()
		require.Empty(t, tier.Check(b.Store))
		b.lease("l").Release()
		b.requireBurstWritten()
	})
}

// TestStoredAgainWhileTheOnlyLevelIsAway: nothing is pinned for a level that as a rule has the object.
func TestStoredAgainWhileTheOnlyLevelIsAway(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = o.Lower[1:] })
		require.NoError(t, put(b, "x", "", 1000))
		b.drain()
		b.remote.Fail(tier.ErrUnavailable)
		require.Error(t, b.get("y"))
		synctest.Wait()
		require.True(t, b.State().Levels[1].Away)
		require.NoError(t, put(b, "x", "", 1000))
		require.Zero(t, b.memory.Usage().Held)
		require.Equal(t, 1, b.State().Backlog)
		b.remote.Do(nil)
		b.drain()
	})
}

// TestStoredAgainAsALevelGoesAway: what waits behind a write that hangs does not stay pinned for the level.
func TestStoredAgainAsALevelGoesAway(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower, o.MaxCalls = o.Lower[1:], 2 }) // one worker writes
		for _, name := range []string{"x", "y", "z"} {
			require.NoError(t, put(b, name, "", 1000))
		}
		b.drain()
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		for _, name := range []string{"x", "y", "z"} {
			require.NoError(t, put(b, name, "", 1000))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, b.State().Levels[1].Away)
		require.Zero(t, b.memory.Usage().Held)
		b.remote.Do(nil)
		b.drain()
	})
}

// TestDrainSaysWhatARestartHadNoRoomFor: what waited beyond the limits after a restart, and went from memory before its
// turn, was said to have been stored again.
func TestDrainSaysWhatARestartHadNoRoomFor(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 10_000, func(o *tier.Options) { o.Lower, o.MaxBacklog = o.Lower[:1], 3000 })
		b.disk.Fail(tier.ErrUnavailable)
		l := b.lease("l")
		for i := range 5 {
			b.store(l, fmt.Sprint(i), "", 1000)
		}
		require.NoError(t, b.Close())
		b.open()
		b.lease("l").Release()
		b.memory.Delete(t.Context(), keys("0", "1", "2", "3", "4")) // as if it had evicted what is not pinned
		b.disk.Do(nil)
		_, err := b.Drain(t.Context())
		require.ErrorIs(t, err, tier.ErrFull)
		require.ErrorContains(t, err, "the backlog had no room for 2 writes")
	})
}
