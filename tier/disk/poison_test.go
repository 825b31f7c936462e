package disk

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// What somebody claimed that its objects cost keeps nobody else from half of the folder, also after a
// restart.
func TestCostPoison(t *testing.T) {
	for _, cost := range []time.Duration{0, time.Hour, math.MaxInt64} {
		t.Run(cost.String(), func(t *testing.T) {
			dir := t.TempDir()
			const room = 32
			o := Options{Capacity: (2*room + 2) * 4096} // nearly each file has a folder of its own
			l := ready(t, dir, o)
			store := func(name string, cost time.Duration) {
				o := objectOf(name, 100)
				o.Cost = cost
				require.NoError(t, put(l, o, content(name, 100)))
			}
			honest := func(name string) {
				t.Helper()
				missed := 0
				for rounds := 0; ; rounds++ {
					require.Less(t, rounds, 20)
					before := missed
					for i := range room / 2 {
						key := fmt.Sprint(name, i)
						gets := []tier.Get{{Key: keyOf(key)}}
						if l.Get(t.Context(), gets); gets[0].Err != nil {
							require.ErrorIs(t, gets[0].Err, tier.ErrNotFound)
							missed++
							store(key, 50*time.Millisecond)
						}
					}
					if missed == before {
						break
					}
				}
				require.LessOrEqual(t, missed, 2*room, "misses until the working set is there")
			}
			for i := range 2 * room {
				store(fmt.Sprint("poison ", i), cost)
			}
			honest("a")
			for i := range 2 * room {
				store(fmt.Sprint("more poison ", i), cost)
			}
			require.NoError(t, l.Close())
			l = ready(t, dir, o)
			honest("b")
		})
	}
}

// Objects that are each other's parents go as others do: whichever comes last, after one was put again, and
// after a restart.
func TestParentCycle(t *testing.T) {
	for _, n := range []int{2, 3, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Capacity: (2*64 + 2) * 4096} // nearly each file has a folder of its own
			l := ready(t, dir, o)
			rings := func(from, to int) (all []string) {
				for ring := from; ring < to; ring++ {
					var puts []tier.Put
					name := func(i int) string { return fmt.Sprint("ring ", ring, " ", i%n) }
					for i := range n {
						o := objectOf(name(i), 100)
						o.Parent = name(i + 1)
						puts = append(puts, tier.Put{Object: o, Bytes: content(o.Name, 100)})
						all = append(all, o.Name)
					}
					l.Put(t.Context(), puts)
					for _, p := range puts {
						require.NoError(t, p.Err)
					}
					again := puts[ring%n]
					require.NoError(t, l.Delete(t.Context(), []tier.Key{again.Object.Key})[0])
					require.NoError(t, put(l, again.Object, again.Bytes))
					check(t, l)
				}
				return all
			}
			gone := func(what string, names []string) {
				t.Helper()
				for i := range 128 {
					mustPut(t, l, fmt.Sprint(what, i), 100)
				}
				for _, name := range names {
					requireMiss(t, stat(l, name))
				}
				check(t, l)
			}
			gone("x", rings(0, 40/n))
			names := rings(100, 100+40/n)
			require.NoError(t, l.Close())
			l = ready(t, dir, o)
			check(t, l)
			for _, name := range names {
				require.NoError(t, stat(l, name))
			}
			gone("y", names)
		})
	}
}

// TestLongChainIsNotWalked: whoever stores what closes a very long chain costs others no more than a bounded
// look under the lock.
func TestLongChainIsNotWalked(t *testing.T) {
	l := ready(t, t.TempDir(), Options{})
	r := l.root
	r.mu.Lock()
	defer r.mu.Unlock()
	at := func(i int) string { return fmt.Sprint("chain", i) }
	enter := func(i int) *entry {
		e := entryOf(at(i))
		e.parent, e.bytes = idOf(at(i-1)), 4096
		r.x.insert(e)
		r.x.makePresent(e)
		return e
	}
	const n = maxAncestors + 2
	for i := range n {
		enter(i)
	}
	child := entryOf("child")
	child.parent, child.bytes = idOf(at(n)), 4096
	r.x.insert(child)
	r.x.makePresent(child)
	require.Equal(t, id{}, enter(n).parent, "it has a child, and too many ancestors to look at")
	require.Equal(t, 2, r.x.leaves.Len(), "the chain's end, and the child")
	for range n + 2 {
		victim := r.x.victim(&r.x.leaves, time.Now(), 0)
		require.NotNil(t, victim)
		r.x.startRemoval(victim)
		r.x.endRemoval(victim, evicted)
	}
	require.Zero(t, r.x.objects)
}
