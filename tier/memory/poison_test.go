//go:build linux

package memory

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// use asks for objects until all of them are there, and puts those that are not. It returns how many it put.
func use(t *testing.T, l tier.Level, objects []tier.Object) (missed int) {
	t.Helper()
	for range 20 {
		before := missed
		for _, o := range objects {
			if _, err := get(l, o.Name); err != nil {
				require.ErrorIs(t, err, tier.ErrNotFound)
				require.NoError(t, put(l, o))
				missed++
			}
		}
		if missed == before {
			return missed
		}
	}
	t.Fatalf("%d objects are not there after 20 rounds: %d misses", len(objects), missed)
	return 0
}

// named returns objects of a cost.
func named(name string, n, size int, cost time.Duration) (all []tier.Object) {
	for i := range n {
		o := object(fmt.Sprint(name, i), "", size)
		o.Cost = cost
		all = append(all, o)
	}
	return all
}

// What somebody claimed that its objects cost keeps nobody else from half of the memory, also after a restart.
func TestCostPoison(t *testing.T) {
	for _, cost := range []time.Duration{0, time.Hour, math.MaxInt64} {
		t.Run(cost.String(), func(t *testing.T) {
			o := options(t)
			o.MaxObjects = 1024
			l := open(t, o)
			const size, room = 900, 64
			for _, p := range named("poison ", 2*room, size, cost) {
				require.NoError(t, put(l, p))
			}
			require.LessOrEqual(t, use(t, l, named("a", room/2, size, 50*time.Millisecond)), 2*room)
			for _, p := range named("more poison ", 2*room, size, cost) {
				require.NoError(t, put(l, p))
			}
			l = reopen(t, l)
			require.LessOrEqual(t, use(t, l, named("b", room/2, size, 50*time.Millisecond)), 2*room)
		})
	}
}

// Objects that are each other's parents go as others do, also after a restart.
func TestParentCycle(t *testing.T) {
	o := options(t)
	o.MaxObjects = 1024
	l := open(t, o)
	var ring []string
	for i := range 20 {
		a, b, c := fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("c", i)
		ring = append(ring, a, b, c)
		for _, x := range []tier.Object{object(a, b, 500), object(b, c, 500), object(c, a, 500)} {
			require.NoError(t, put(l, x))
		}
	}
	require.Len(t, present(l, ring...), len(ring))
	l = reopen(t, l)
	require.Len(t, present(l, ring...), len(ring))
	for _, x := range named("other ", 300, 500, 0) {
		require.NoError(t, put(l, x))
	}
	require.Empty(t, present(l, ring...))
}
