package leases

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever comes and goes, the leases are those that a map would have, with few of them and with many.
func TestLeasesAreThoseOfAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	objects := make([]int, 3*many)
	for range 50 {
		var a Leases[int]
		want := map[*int]int{}
		most := 1 + rng.IntN(len(objects))
		for range 400 {
			o := &objects[rng.IntN(most)]
			switch l := a.Of(o); {
			case l == nil:
				require.Zero(t, want[o])
				a.Add(o)
				a.Of(o).Times, want[o] = len(want)+1, len(want)+1
			case rng.IntN(3) == 0:
				a.Remove(l)
				delete(want, o)
			case rng.IntN(100) == 0:
				a.Clear()
				clear(want)
			}
			n := 0
			for l := range a.All() {
				require.Equal(t, want[l.Object], l.Times)
				n++
			}
			require.Len(t, want, n)
		}
	}
}

// A request with few objects has them in its own memory.
func TestFewLeasesDoNotAllocate(t *testing.T) {
	var x, y int
	a := new(Leases[int])
	require.Zero(t, testing.AllocsPerRun(100, func() {
		a.Add(&x)
		a.Add(&y)
		a.Remove(a.Of(&x))
		a.Clear()
	}))
}
