package tier_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// chain puts a chain into a level, and returns its names.
func chain(t *testing.T, l putter, prefix string, n int, size int64) []string {
	t.Helper()
	names := make([]string, n)
	parent := ""
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
		require.NoError(t, put(l, names[i], parent, size))
		parent = names[i]
	}
	return names
}

func TestAChainIsBroughtInOrder(t *testing.T) {
	for _, backwards := range []bool{false, true} {
		in(t, func(t *testing.T) {
			b := newBed(t, 1<<30, func(o *tier.Options) { o.MaxBytesInFlight = 20000 })
			names := chain(t, b.maps[1], "c", 100, 1000)
			if backwards {
				slices.Reverse(names)
			}
			for _, err := range b.pin(b.lease("l"), names...) {
				require.NoError(t, err)
			}
			up, _ := tier.PeakInFlight(b.Store)
			require.LessOrEqual(t, up, int64(15000))
			require.Less(t, b.remote.Calls("Get"), 50, "in batches")
			require.Equal(t, 1, b.remote.Calls("Stat"))
		})
	}
}

// TestAChildNeverComesWithoutItsParent: whatever is missing, damaged or has no room.
func TestAChildNeverComesWithoutItsParent(t *testing.T) {
	for name, hurt := range map[string]func(b *bed, k tier.Key){
		"gone":    func(b *bed, k tier.Key) { b.maps[1].Delete(b.t.Context(), []tier.Key{k}) },
		"damaged": func(b *bed, k tier.Key) { b.maps[1].Damage(k) },
		"lost": func(b *bed, k tier.Key) {
			b.remote.Do(func(c tiertest.Call) tiertest.Answer { return tiertest.Answer{Lose: is(c, "Get") && c.Key == k} })
		},
		"reserved elsewhere": func(b *bed, k tier.Key) {
			l, _ := b.memory.Lease(b.t.Context(), tier.LeaseOptions{ID: "other"})
			l.Reserve([]tier.Object{{Key: k, Size: 10}})
			b.t.Cleanup(l.Release)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{0, 3, 70} {
				in(t, func(t *testing.T) {
					b := newBed(t, 1<<30, func(o *tier.Options) { o.MaxBytesInFlight = 40000 })
					names := chain(t, b.maps[1], "c", 100, 1000)
					hurt(b, key(names[at]))
					l := b.lease("l")
					l.Pin(keys(names...))
					synctest.Wait()
					for i, f := range b.memory.Stat(t.Context(), keys(names...)) {
						if i < at {
							require.NoError(t, f.Err, "%d of the chain", i)
						} else {
							require.Error(t, f.Err, "%d of the chain, whose %d. part was hurt", i, at)
						}
					}
					l.Release()
				})
			}
		})
	}
}

// TestAChainLargerThanMemory: its head stays, in place of being evicted for its tail.
func TestAChainLargerThanMemory(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 20000, nil)
		names := chain(t, b.maps[0], "c", 23, 1000)
		l := b.lease("l")
		errs := b.pin(l, names...)
		for i, err := range errs {
			if i < 20 {
				require.NoError(t, err, "%d", i)
			} else {
				require.Error(t, err, "%d", i)
			}
		}
		require.ErrorIs(t, errs[20], tier.ErrFull)
		l.Release()
		for i, p := range b.lease("m").PinPrefix(keys(names...)) {
			if i < 20 {
				require.NoError(t, p.Err, "%d", i)
			} else {
				require.ErrorIs(t, p.Err, tier.ErrPending, "%d: there may be room now", i)
			}
		}
	})
}

// TestTailDoesNotEvictItsHead: of three chunks behind a chain that fills memory, the first had no room, since its
// ancestors stay. The others had a parent that memory does not have, and evicted the end of the chain.
func TestTailDoesNotEvictItsHead(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 20000, nil)
		names := chain(t, b.maps[0], "c", 23, 1000)
		l := b.lease("l")
		for _, err := range b.pin(l, names[:20]...) {
			require.NoError(t, err)
		}
		l.Release()
		for _, err := range b.Prefetch(t.Context(), keys(names[20:]...), 0) {
			require.ErrorIs(t, err, tier.ErrPending)
		}
		synctest.Wait()
		for i, name := range names {
			if i < 20 {
				require.Equal(t, "memory disk", b.has(name))
			} else {
				require.Equal(t, "disk", b.has(name))
			}
		}
	})
}

// TestTwoHalvesOfAChain: the second one is asked for while the first one is on its way.
func TestTwoHalvesOfAChain(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		names := chain(t, b.maps[1], "c", 8, 1000)
		wait := make(chan struct{})
		b.remote.Do(func(c tiertest.Call) tiertest.Answer {
			if is(c, "Get") {
				return tiertest.Answer{Wait: wait}
			}
			return tiertest.Answer{}
		})
		l, other := b.lease("l"), b.lease("other")
		l.Pin(keys(names[:4]...))
		synctest.Wait()
		other.Pin(keys(names[4:]...))
		synctest.Wait()
		require.Equal(t, 8, b.State().Fetches)
		l.Release()
		synctest.Wait()
		require.Equal(t, 8, b.State().Fetches, "the second half needs the end of the first one, and so what is in front of that")
		close(wait)
		for _, err := range b.pin(other, names[4:]...) {
			require.NoError(t, err)
		}
	})
}

// TestParentsInACircle: somebody wrote nonsense into a shared level.
func TestParentsInACircle(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		require.NoError(t, put(b.maps[1], "a", "b", 10))
		require.NoError(t, put(b.maps[1], "b", "a", 10))
		l, other := b.lease("l"), b.lease("other")
		for _, err := range b.pin(l, "a", "b") {
			require.ErrorIs(t, err, tier.ErrNotFound)
		}
		time.Sleep(2 * time.Second)
		wait := make(chan struct{})
		b.remote.Do(func(tiertest.Call) tiertest.Answer { return tiertest.Answer{Wait: wait} })
		l.Pin(keys("a"))
		other.Pin(keys("b"))
		close(wait)
		require.NoError(t, b.pin(l, "a")[0], "of those that are asked for alone, one waits for the other")
		require.NoError(t, b.pin(other, "b")[0])
		require.NoError(t, b.get("a"), "Get is asked for one object")
	})
}

// TestAChildAlone: who asks for a child without its parent has that elsewhere, as an engine that has the first
// chunks of a prompt in its own prefix cache.
func TestAChildAlone(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		names := chain(t, b.maps[1], "c", 4, 1000)
		l := b.lease("l")
		for _, err := range b.pin(l, names[2:]...) {
			require.NoError(t, err)
		}
		require.Equal(t, []error{nil, nil}, b.pin(l, names[:2]...), "what is in front of it comes later")
	})
}

// TestAChildWhoseParentIsKnownToBeNowhere: a child is worthless if its parent was asked for as well, also if that is
// not looked up, since it was in vain a moment ago.
func TestAChildWhoseParentIsKnownToBeNowhere(t *testing.T) {
	in(t, func(t *testing.T) {
		b := newBed(t, 1<<20, nil)
		names := chain(t, b.maps[1], "c", 2, 1000)
		b.maps[1].Delete(t.Context(), keys("c0"))
		l := b.lease("l")
		require.ErrorIs(t, b.pin(l, "c0")[0], tier.ErrNotFound)
		for _, err := range b.pin(l, names...) {
			require.ErrorIs(t, err, tier.ErrNotFound)
		}
		errs := b.Prefetch(t.Context(), keys(names...), 0)
		require.ErrorIs(t, errs[0], tier.ErrNotFound)
		require.ErrorIs(t, errs[1], tier.ErrPending)
		synctest.Wait()
		require.Equal(t, "remote", b.has("c1"))
	})
}

// gated is a level that has its answer about "c" ready, and gives it later.
type gated struct {
	tier.Level
	in, out chan struct{}
}

func (g gated) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	found := g.Level.Stat(ctx, keys)
	if keys[0].Name == "c" {
		select {
		case g.in <- struct{}{}:
			<-g.out
		default:
		}
	}
	return found
}

// TestAChildThatIsAskedForAgainIsNoMiss: a lease gives a pending child up, and asks for it again before the
// worker that was told so has noticed. Its parent is in memory.
func TestAChildThatIsAskedForAgainIsNoMiss(t *testing.T) {
	in(t, func(t *testing.T) {
		g := gated{in: make(chan struct{}), out: make(chan struct{})}
		b := newBed(t, 1<<20, func(o *tier.Options) {
			g.Level = o.Lower[0].Level
			o.Lower = []tier.Lower{{Level: g}}
		})
		require.NoError(t, put(b, "p", "", 16))
		_, err := b.Drain(t.Context())
		require.NoError(t, err)
		require.NoError(t, put(b.maps[0], "c", "p", 16))
		l := b.lease("client")
		go func() {
			<-g.in
			l.Unpin(keys("c"))
			l.Pin(keys("c"))
			close(g.out)
		}()
		synctest.Wait()
		require.NoError(t, b.pin(l, "p", "c")[1])
	})
}
