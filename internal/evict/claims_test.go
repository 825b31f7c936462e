package evict

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oddCosts are claims that somebody may think of.
var oddCosts = []float64{0, -1, math.NaN(), 1e-300, 1, 50e6, 3600e9, math.MaxInt64, math.MaxFloat64, math.Inf(1)}

// Whatever is claimed, a value is what it is if nothing is, up to maxClaim times that, and exactly that once the
// object was not used for claimRounds rounds.
func TestCostPoison(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p, q := New(), New() // of the same objects, with claims and without
		type pair struct {
			p, q *Entry
			used int64 // bytes stored when it was used last
		}
		const room = 1000
		var live []pair
		var stored int64
		for range rapid.IntRange(100, 300).Draw(r, "calls") {
			i := -1
			if len(live) > 0 {
				i = rapid.IntRange(0, len(live)-1).Draw(r, "object")
			}
			switch call := rapid.IntRange(0, 5).Draw(r, "call"); {
			case call == 0 && i >= 0:
				p.Hit(live[i].p)
				q.Hit(live[i].q)
				live[i].used = stored
			case call == 1 && i >= 0:
				p.Evict(live[i].p)
				q.Evict(live[i].q)
				live = append(live[:i], live[i+1:]...)
			default:
				key := rapid.StringMatching("[A-Z]").Draw(r, "key")
				c := Claim{
					Tenant: rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "tenant"), Bytes: rapid.Int64Range(0, 300).Draw(r, "bytes"), Room: room,
					Cost: rapid.OneOf(rapid.SampledFrom(oddCosts), rapid.Float64Min(0)).Draw(r, "cost"),
				}
				x := pair{new(Entry), new(Entry), 0}
				p.AddClaimed(x.p, key, c)
				c.Cost = 0
				q.AddClaimed(x.q, key, c)
				stored += c.Bytes
				x.used = stored
				live = append(live, x)
			}
			for _, x := range live {
				with, without := p.Value(x.p), q.Value(x.q)
				require.Greater(r, without, 0.0)
				require.GreaterOrEqual(r, with, without)
				require.LessOrEqual(r, with, maxClaim*without)
				// A round ends with the object that makes it full.
				if stored-x.used >= claimRounds*(room+300) {
					require.Equal(r, without, with)
				}
			}
		}
	})
}

// poisoned is a cache of equal objects, of which somebody claims things.
type poisoned struct {
	cached
	claim func(key string) Claim
}

func (c *poisoned) use(key string) (hit bool) {
	if e := c.entries[key]; e != nil {
		c.Hit(e)
		return true
	}
	if len(c.keys) == c.room {
		at := 0
		for i, k := range c.keys {
			if c.Value(c.entries[k]) < c.Value(c.entries[c.keys[at]]) {
				at = i
			}
		}
		c.Evict(c.entries[c.keys[at]])
		delete(c.entries, c.keys[at])
		c.keys[at] = c.keys[len(c.keys)-1]
		c.keys = c.keys[:len(c.keys)-1]
	}
	e := new(Entry)
	claim := c.claim(key)
	claim.Bytes, claim.Room = 1, int64(c.room)
	c.AddClaimed(e, key, claim)
	c.entries[key] = e
	c.keys = append(c.keys, key)
	return false
}

// An honest working set of half of the cache is there again after claimRounds rounds at the latest, whatever is
// in the cache, and while the attack goes on it hits about as often as if the attacker claimed nothing.
func TestHonestUsersHitWhateverOthersClaim(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		costs := rapid.SliceOfN(rapid.SampledFrom(oddCosts), 1, 6).Draw(r, "costs")
		tenant := rapid.SampledFrom([]string{"", "honest", "other"}).Draw(r, "tenant")
		before := rapid.IntRange(0, 500).Draw(r, "objects before")
		again := rapid.IntRange(0, 2).Draw(r, "uses of each")
		rate := rapid.IntRange(0, 2).Draw(r, "objects for each honest use")
		const room, set = 64, 32
		hits := func(costs []float64) (during, after int) {
			c := &poisoned{cached: *newCached(room)}
			n := 0
			c.claim = func(key string) Claim {
				if key[0] == 'h' {
					return Claim{Tenant: "honest", Cost: 50e6}
				}
				return Claim{Tenant: tenant, Cost: costs[n%len(costs)]}
			}
			attack := func() {
				n++
				for range 1 + again {
					c.use(fmt.Sprint("poison ", n))
				}
			}
			round := func(rate int) (hits int) {
				for i := range set {
					for range rate {
						attack()
					}
					if c.use(fmt.Sprint("honest ", i)) {
						hits++
					}
				}
				return hits
			}
			for range before {
				attack()
			}
			for range 40 {
				during += round(rate)
			}
			for missed := 0; missed < claimRounds*room; {
				h := round(0)
				if h == set {
					break
				}
				missed += set - h
			}
			return during, round(0)
		}
		with, after := hits(costs)
		without, _ := hits([]float64{0})
		require.Equal(r, set, after)
		slack := 2.0 * set
		if rate == 0 { // what was claimed before counts until claimRounds rounds were missed
			slack = claimRounds * room
		}
		require.GreaterOrEqual(r, float64(with), 0.8*float64(without)-slack, "of %d; %d if nothing is claimed", 40*set, without)
	})
}

// Claims are compared with the others of the tenant: more for everything is nothing, and who claims nothing is no less.
func TestClaimsAreCompared(t *testing.T) {
	for _, cost := range []float64{1e3, 3e6, 1e9, math.MaxInt64} {
		p := New()
		var e [3]Entry
		for i := range 1000 {
			p.AddClaimed(&e[0], fmt.Sprint(i), Claim{Tenant: "a", Cost: cost, Bytes: 1, Room: 1 << 40})
			p.Remove(&e[0])
		}
		p.AddClaimed(&e[0], "usual", Claim{Tenant: "a", Cost: cost, Bytes: 1, Room: 1 << 40})
		p.AddClaimed(&e[1], "unknown", Claim{Tenant: "a", Bytes: 1, Room: 1 << 40})
		p.AddClaimed(&e[2], "dear", Claim{Tenant: "a", Cost: min(2*cost, maxCost), Bytes: 1, Room: 1 << 40})
		require.InEpsilon(t, p.Value(&e[1]), p.Value(&e[0]), 0.1)
		if cost < maxCost {
			require.InEpsilon(t, 2, p.Value(&e[2])/p.Value(&e[1]), 0.1)
		}
	}
	require.LessOrEqual(t, reflect.TypeFor[Entry]().Size(), uintptr(40), "a store may have a million of them")
}
