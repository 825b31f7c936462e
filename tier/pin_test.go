package tier_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

func isPending(err error) bool { return errors.Is(err, tier.ErrPending) }

func TestPinBringsWhatIsBelow(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[0], "on disk", "", 1000))
		require.NoError(t, put(b.maps[1], "remote", "", 2000))
		require.NoError(t, put(b.memory, "here", "", 10))
		wait := make(chan struct{})
		for _, l := range []*tiertest.Fault{b.disk, b.remote} {
			l.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		}
		l := b.lease("l")
		names := []string{"here", "on disk", "nowhere", "remote"}
		errs := b.errs(l.Pin(keys(names...)), names...)
		require.NoError(t, errs[0])
		for _, err := range errs[1:] {
			require.ErrorIs(t, err, tier.ErrPending)
		}
		close(wait) // Pin did not wait for them
		synctest.Wait()
		errs = b.errs(l.Pin(keys(names...)), names...)
		require.NoError(t, errs[1])
		require.ErrorIs(t, errs[2], tier.ErrNotFound)
		require.NoError(t, errs[3])
		require.ElementsMatch(t, keys("here", "on disk", "remote"), l.State().Pinned)
		require.Equal(t, 1, b.disk.Calls("Stat"), "one lookup for the batch")
		require.Equal(t, 1, b.disk.Elements("Get"))
		l.Release()
		require.Zero(t, b.memory.Usage().Held, "nothing of the store holds what was taken")
	})
}

// TestPinHearsOfAFailureOnce: also an asker who comes back after the miss is forgotten gets an answer, in
// place of being pending again and again.
func TestPinHearsOfAFailureOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		l := b.lease("l")
		require.ErrorIs(t, l.Pin(keys("nowhere"))[0].Err, tier.ErrPending)
		time.Sleep(3 * time.Second) // longer than NegativeTTL
		require.ErrorIs(t, l.Pin(keys("nowhere"))[0].Err, tier.ErrNotFound)
		require.ErrorIs(t, l.Pin(keys("nowhere"))[0].Err, tier.ErrPending, "a new question")
	})
}

// TestARareAskerHearsOfAFailure: who asked more rarely than one and a half times PromotedFor was told ErrPending for
// ever.
func TestARareAskerHearsOfAFailure(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		l := b.lease("l")
		for _, pause := range []time.Duration{16 * time.Second, time.Hour} {
			require.ErrorIs(t, l.Pin(keys("nowhere"))[0].Err, tier.ErrPending)
			time.Sleep(pause)
			require.ErrorIs(t, l.Pin(keys("nowhere"))[0].Err, tier.ErrNotFound, "after %v", pause)
		}
	})
}

// TestTheOldestAnswersAreForgotten: of askers who do not come back, no more than MaxFetches answers stay, and they
// keep no newer ones out.
func TestTheOldestAnswersAreForgotten(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.MaxFetches = 4 })
		first, second := b.lease("first"), b.lease("second")
		for i := range 10 {
			name := strconv.Itoa(i)
			wait := make(chan struct{}) // both ask before the answer is there
			b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
			require.ErrorIs(t, first.Pin(keys(name))[0].Err, tier.ErrPending)
			require.ErrorIs(t, second.Pin(keys(name))[0].Err, tier.ErrPending)
			close(wait)
			time.Sleep(time.Minute)
			_, _, unreported := tier.Queued(b.Store)
			require.Equal(t, min(2*(i+1), 4), unreported)
			require.Empty(t, tier.Check(b.Store))
		}
		for _, name := range []string{"8", "9"} {
			require.ErrorIs(t, first.Pin(keys(name))[0].Err, tier.ErrNotFound)
			require.ErrorIs(t, second.Pin(keys(name))[0].Err, tier.ErrNotFound)
		}
		require.ErrorIs(t, first.Pin(keys("7"))[0].Err, tier.ErrPending, "forgotten")
		first.Release()
	})
}

// TestAFailureIsOutOfDate: before a lease hears that an object is nowhere, another fetch of it has begun.
func TestAFailureIsOutOfDate(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		l := b.lease("l")
		l.Pin(keys("x"))
		time.Sleep(3 * time.Second)
		_, _, unreported := tier.Queued(b.Store)
		require.Equal(t, 1, unreported)
		require.NoError(t, put(b.maps[0], "x", "", 100))
		wait := make(chan struct{})
		b.disk.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Get") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		b.Prefetch(context.Background(), keys("x"), 0)
		synctest.Wait()
		require.ErrorIs(t, l.Pin(keys("x"))[0].Err, tier.ErrPending, "memory has a reservation")
		_, _, unreported = tier.Queued(b.Store)
		require.Zero(t, unreported)
		require.Empty(t, tier.Check(b.Store))
		close(wait)
		require.NoError(t, b.pin(l, "x")[0])
	})
}

func TestPinWithoutLowerLevelsIsAMissAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower = nil })
		require.ErrorIs(t, b.lease("l").Pin(keys("nowhere"))[0].Err, tier.ErrNotFound)
	})
}

func TestManyAskersOneRead(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		for i := range 50 {
			l := b.lease(string(rune('a' + i)))
			defer l.Release()
			require.ErrorIs(t, l.Pin(keys("x"))[0].Err, tier.ErrPending)
		}
		close(wait)
		synctest.Wait()
		for i := range 50 {
			l := b.lease(string(rune('a' + i)))
			require.NoError(t, b.errs(l.Pin(keys("x")), "x")[0])
		}
		require.Equal(t, 1, b.remote.Elements("Get"))
		require.Equal(t, 1, b.remote.Elements("Stat"))
	})
}

// TestWhatIsBroughtStaysForWhoAsked: memory is small, and others fill it meanwhile.
func TestWhatIsBroughtStaysForWhoAsked(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 3000, func(o *tier.Options) { o.Lower = o.Lower[1:] })
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		l, other := b.lease("l"), b.lease("other")
		defer other.Release()
		require.ErrorIs(t, l.Pin(keys("x"))[0].Err, tier.ErrPending)
		require.ErrorIs(t, other.Pin(keys("x"))[0].Err, tier.ErrPending)
		close(wait)
		synctest.Wait()
		for _, name := range []string{"1", "2", "3", "4"} {
			require.NoError(t, put(b.memory, name, "", 1000))
		}
		require.NoError(t, b.errs(l.Pin(keys("x")), "x")[0])
		l.Release()
		for _, name := range []string{"5", "6", "7", "8"} {
			require.NoError(t, put(b.memory, name, "", 1000))
		}
		require.Contains(t, b.has("x"), "memory", "the other asker has not come yet")
		time.Sleep(20 * time.Second)
		require.Zero(t, b.memory.Usage().Held, "it had its time")
	})
}

func TestPinOfAFullMemory(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 3000, nil)
		require.NoError(t, put(b.maps[1], "x", "", 2000))
		require.NoError(t, put(b.maps[1], "huge", "", 5000))
		l := b.lease("l")
		b.store(l, "a", "", 2000) // pinned by the commit
		require.ErrorIs(t, b.pin(l, "x")[0], tier.ErrFull)
		require.ErrorIs(t, b.pin(l, "huge")[0], tier.ErrTooLarge)
		require.NoError(t, b.get("x"), "Get reads it for its caller")
		require.NoError(t, b.get("huge"))
		l.Release()
		time.Sleep(2 * time.Second)
		require.NoError(t, b.pin(b.lease("m"), "x")[0])
	})
}

func TestUnwantedIsCancelled(t *testing.T) {
	for name, lose := range map[string]func(*bed, *tier.StoreLease){
		"unpinned": func(_ *bed, l *tier.StoreLease) { l.Unpin(keys("x")) },
		"released": func(_ *bed, l *tier.StoreLease) { l.Release() },
		"released by the last of several calls": func(b *bed, l *tier.StoreLease) {
			require.False(b.t, l.ReleaseSome())
		},
		"silent":  func(*bed, *tier.StoreLease) { time.Sleep(20 * time.Second) },
		"deleted": func(b *bed, _ *tier.StoreLease) { b.Delete(b.t.Context(), keys("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBed(t, 1<<20, func(o *tier.Options) { o.Lower[1].Timeout = time.Hour })
				require.NoError(t, put(b.maps[1], "x", "", 1000))
				b.remote.Do(func(c tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: is(c, "Get")} })
				l := b.lease("l")
				require.ErrorIs(t, l.Pin(keys("x"))[0].Err, tier.ErrPending)
				synctest.Wait()
				require.Equal(t, int64(1000), b.State().InFlight)
				lose(b, l)
				synctest.Wait()
				require.Zero(t, b.State().Fetches)
				require.Zero(t, b.State().InFlight)
				require.Zero(t, b.memory.Usage().Held)
				require.NotContains(t, b.has("x"), "memory")
			})
		})
	}
}

func TestWantedByAnotherIsNotCancelled(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "x", "", 1000))
		wait := make(chan struct{})
		b.remote.Do(func(c tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		l, other := b.lease("l"), b.lease("other")
		l.Pin(keys("x"))
		other.Pin(keys("x"))
		synctest.Wait()
		l.Release()
		close(wait)
		require.NoError(t, b.pin(other, "x")[0])
	})
}

func TestMaxFetches(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, func(o *tier.Options) { o.MaxFetches = 2 })
		b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Hang: true} })
		l := b.lease("l")
		errs := b.errs(l.Pin(keys("a", "b", "c")))
		require.ErrorIs(t, errs[1], tier.ErrPending)
		require.ErrorIs(t, errs[2], tier.ErrFull)
	})
}

func TestPinPrefix(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[0], "a", "", 100))
		require.NoError(t, put(b.maps[0], "b", "a", 100))
		require.NoError(t, put(b.maps[0], "d", "", 100))
		require.NoError(t, put(b.memory, "e", "", 100))
		wait := make(chan struct{}) // else a may be in memory before the call ends
		b.disk.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		l := b.lease("l")
		placed := l.PinPrefix(keys("a", "b", "c", "d", "e"))
		require.Len(t, placed, 5)
		require.ErrorIs(t, placed[4].Err, tier.ErrPending, "a miss may be found in front of it")
		require.Empty(t, l.State().Pinned)
		close(wait)
		synctest.Wait()
		placed = l.PinPrefix(keys("a", "b", "c", "d", "e"))
		require.Len(t, placed, 3)
		require.NoError(t, placed[0].Err)
		require.NoError(t, placed[1].Err)
		require.ErrorIs(t, placed[2].Err, tier.ErrNotFound)
		require.ElementsMatch(t, keys("a", "b"), l.State().Pinned, "what is behind the miss is not pinned")
		require.Equal(t, 2, b.disk.Elements("Get"), "nor fetched")
	})
}

func TestPinPrefixPinsWhatIsInFrontOfAPendingObject(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		for _, name := range []string{"a", "b", "d"} {
			require.NoError(t, put(b.memory, name, "", 10))
		}
		require.NoError(t, put(b.maps[0], "c", "", 10))
		l := b.lease("l")
		names := []string{"a", "b", "c", "d"}
		errs := b.errs(l.PinPrefix(keys(names...)), names...)
		require.NoError(t, errs[1])
		require.ErrorIs(t, errs[2], tier.ErrPending)
		require.ErrorIs(t, errs[3], tier.ErrPending)
		require.ElementsMatch(t, keys("a", "b"), l.State().Pinned)
		synctest.Wait()
		for _, err := range b.errs(l.PinPrefix(keys(names...)), names...) {
			require.NoError(t, err)
		}
		require.ElementsMatch(t, keys(names...), l.State().Pinned)
		l.Release()
		for _, p := range l.PinPrefix(keys("x", "a")) {
			require.ErrorIs(t, p.Err, tier.ErrEnded)
		}
	})
}

// TestPinPrefixPinsNothingBehindAMiss that is found after the first call.
func TestPinPrefixPinsNothingBehindAMiss(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.memory, "c", "", 16))
		l := b.lease("client")
		require.Len(t, l.PinPrefix(keys("nowhere", "c")), 2)
		synctest.Wait()
		placed := l.PinPrefix(keys("nowhere", "c"))
		require.Len(t, placed, 1)
		require.ErrorIs(t, placed[0].Err, tier.ErrNotFound)
		require.Empty(t, l.State().Pinned)
	})
}

func TestClosedStore(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		l := b.lease("l")
		require.NoError(t, b.Close())
		require.NoError(t, b.Close())
		require.ErrorContains(t, l.Pin(keys("a"))[0].Err, "closed")
		require.ErrorContains(t, l.PinPrefix(keys("a"))[0].Err, "closed")
		require.ErrorContains(t, l.Reserve([]tier.Object{object("a", "", 1)})[0].Err, "closed")
		require.ErrorContains(t, l.Commit(keys("a"))[0], "closed")
		require.ErrorContains(t, b.get("a"), "closed")
		require.ErrorContains(t, put(b.Store, "a", "", 1), "closed")
		require.ErrorContains(t, b.Delete(t.Context(), keys("a"))[0], "closed")
		require.ErrorContains(t, b.Stat(t.Context(), keys("a"))[0].Err, "closed")
		require.ErrorContains(t, b.Prefetch(t.Context(), keys("a"), 0)[0], "closed")
		_, err := b.Drain(t.Context())
		require.ErrorContains(t, err, "closed")
		for _, err := range b.List(t.Context(), "") {
			require.ErrorContains(t, err, "closed")
		}
		_, err = b.Lease(t.Context(), tier.LeaseOptions{ID: "m"})
		require.ErrorContains(t, err, "closed")
		l.Release()
	})
}

// TestPinOfWhatIsReserved: an object that somebody stores is told from one that is fetched.
func TestPinOfWhatIsReserved(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		writer, reader := b.lease("writer"), b.lease("reader")
		o := tier.Object{Key: key("reserved"), Size: 16}
		require.NoError(t, writer.Reserve([]tier.Object{o})[0].Err)
		for _, placed := range [][]tier.Placed{reader.Pin(keys("reserved")), reader.PinPrefix(keys("reserved", "behind"))} {
			require.ErrorIs(t, placed[0].Err, tier.ErrReserved)
			require.ErrorIs(t, placed[0].Err, tier.ErrPending)
		}
		writer.Release()
		other := reader.Pin(keys("elsewhere"))[0]
		require.ErrorIs(t, other.Err, tier.ErrPending)
		require.NotErrorIs(t, other.Err, tier.ErrReserved)
	})
}

// TestOnlyMissesAreRemembered: the negative cache had also what is there, but had no room in memory, or whose level
// or parent failed. So others were told so for NegativeTTL after it was over.
func TestOnlyMissesAreRemembered(t *testing.T) {
	oneLevel := func(o *tier.Options) { o.Lower = o.Lower[:1] }
	t.Run("no room", func(t *testing.T) {
		in(t, func(t *testing.T) {
			b := newBed(t, 3000, func(o *tier.Options) { o.Lower, o.MaxBacklog = o.Lower[:1], 2000 })
			require.NoError(t, put(b.maps[0], "x", "", 2000))
			holder := b.lease("holder")
			b.store(holder, "big", "", 2000)
			b.drain()
			require.ErrorIs(t, b.pin(b.lease("l"), "x")[0], tier.ErrFull)
			holder.Release()
			require.NoError(t, b.pin(b.lease("m"), "x")[0])
		})
	})
	for _, method := range []string{"Stat", "Get"} {
		t.Run(method+" fails", func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBed(t, 1<<20, oneLevel)
				require.NoError(t, put(b.maps[0], "x", "", 100))
				b.disk.Do(func(c tiertest.Call) tiertest.Answer {
					if is(c, method) && c.Key.Name == "x" {
						return tiertest.Answer{Err: tier.ErrUnavailable}
					}
					return tiertest.Answer{}
				})
				require.ErrorIs(t, b.pin(b.lease("l"), "x")[0], tier.ErrUnavailable)
				b.disk.Do(nil)
				require.NoError(t, b.pin(b.lease("m"), "x")[0])
			})
		})
	}
	t.Run("the parent fails", func(t *testing.T) {
		in(t, func(t *testing.T) {
			b := newBed(t, 1<<20, oneLevel)
			require.NoError(t, put(b.maps[0], "parent", "", 100))
			require.NoError(t, put(b.maps[0], "child", "parent", 100))
			b.disk.Do(func(c tiertest.Call) tiertest.Answer {
				if is(c, "Get") && c.Key.Name == "parent" {
					return tiertest.Answer{Err: tier.ErrUnavailable}
				}
				return tiertest.Answer{}
			})
			require.ErrorIs(t, b.pin(b.lease("l"), "parent", "child")[1], tier.ErrNotFound)
			b.disk.Do(nil)
			require.NoError(t, put(b, "parent", "", 100))
			require.NoError(t, b.pin(b.lease("m"), "child")[0])
		})
	})
	t.Run("a miss", func(t *testing.T) {
		in(t, func(t *testing.T) {
			b := newBed(t, 1<<20, oneLevel)
			require.ErrorIs(t, b.pin(b.lease("l"), "x")[0], tier.ErrNotFound)
			require.NoError(t, put(b.maps[0], "x", "", 100))
			require.ErrorIs(t, b.lease("m").Pin(keys("x"))[0].Err, tier.ErrNotFound)
		})
	})
}

// interrupted is a memory level whose leases do something between a Pin and its answer.
type interrupted struct {
	tier.MemoryLevel
	then func()
}

type interruptedLease struct {
	tier.Lease
	level *interrupted
}

func (m *interrupted) Lease(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
	l, err := m.MemoryLevel.Lease(ctx, o)
	return &interruptedLease{l, m}, err
}

func (l *interruptedLease) PinPrefix(keys []tier.Key) []tier.Placed {
	placed := l.Lease.PinPrefix(keys)
	l.level.then()
	return placed
}

func (l *interruptedLease) Pin(keys []tier.Key) []tier.Placed {
	placed := l.Lease.Pin(keys)
	l.level.then()
	return placed
}

// TestFetchEndsWhileItIsAskedFor: memory said that a fetch had reserved an object, and the fetch ended before the store
// looked for it. Then somebody else seemed to be storing it, which who looks for a prefix does not wait for.
func TestFetchEndsWhileItIsAskedFor(t *testing.T) {
	for _, prefix := range []bool{false, true} {
		in(t, func(t *testing.T) {
			m := &interrupted{then: func() {}}
			b := newBed(t, 1<<20, func(o *tier.Options) { m.MemoryLevel, o.Memory = o.Memory, m })
			require.NoError(t, put(b.maps[0], "x", "", 1000))
			wait := make(chan struct{})
			b.disk.Do(func(c tiertest.Call) tiertest.Answer {
				if is(c, "Get") {
					return tiertest.Answer{Wait: wait}
				}
				return tiertest.Answer{}
			})
			l := b.lease("l")
			pin := l.Pin
			if prefix {
				pin = l.PinPrefix
			}
			require.ErrorIs(t, pin(keys("x"))[0].Err, tier.ErrPending)
			synctest.Wait() // a worker has reserved room, and reads
			first := true
			m.then = func() {
				if first {
					first = false
					close(wait)
					synctest.Wait()
				}
			}
			err := pin(keys("x"))[0].Err
			if err != nil {
				require.ErrorIs(t, err, tier.ErrPending)
				require.NotErrorIs(t, err, tier.ErrReserved)
			}
			require.NoError(t, pin(keys("x"))[0].Err)
		})
	}
}
