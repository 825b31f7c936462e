package evict

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type candidate struct {
	at   int32
	cost float64
	may  bool
}

func placeOf(c *candidate) *int32 { return &c.at }

func lossOf(c *candidate) (float64, bool) { return c.cost, c.may }

func TestCandidates(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := NewCandidates(placeOf)
		var in, out []*candidate
		for range rapid.IntRange(0, 300).Draw(r, "n") {
			x := &candidate{cost: rapid.Float64Range(0, 1).Draw(r, "cost"), may: rapid.Bool().Draw(r, "may")}
			c.Add(x)
			if in = append(in, x); rapid.IntRange(0, 3).Draw(r, "remove") == 0 {
				i := rapid.IntRange(0, len(in)-1).Draw(r, "which")
				c.Remove(in[i])
				out = append(out, in[i])
				in = append(in[:i], in[i+1:]...)
			}
		}
		require.Equal(r, len(in), c.Len())
		least, some := 2.0, false
		for _, x := range in {
			require.True(r, c.Has(x))
			if x.may {
				least, some = min(least, x.cost), true
			}
		}
		for _, x := range out {
			require.False(r, c.Has(x))
		}
		best, ok := c.Cheapest(lossOf)
		require.Equal(r, some, ok, "one is found, wherever it is")
		if ok {
			require.True(r, best.may && c.Has(best))
			if len(in) <= sample {
				require.InDelta(r, least, best.cost, 0, "of few, all are compared")
			}
		}
	})
}

// TestSamplesGoThroughAll: each candidate is compared before any is compared again, and those that were added one
// after the other are in different samples.
func TestSamplesGoThroughAll(t *testing.T) {
	const n = 100 * sample
	c := NewCandidates(placeOf)
	for range n {
		c.Add(&candidate{may: true})
	}
	times := map[*candidate]int{}
	for range n / sample {
		places := map[int32]bool{}
		c.Cheapest(func(x *candidate) (float64, bool) {
			times[x]++
			require.False(t, places[x.at-1] && places[x.at-2], "neighbours are in one sample")
			places[x.at] = true
			return 0, true
		})
		require.Len(t, places, sample)
	}
	require.Len(t, times, n)
}

func TestQuotasFor(t *testing.T) {
	q := Quotas{Of: map[string]int64{"a": 5, "free": 0, "": 7}, Each: 9}
	for tenant, want := range map[string]int64{"a": 5, "free": 0, "b": 9, "": 0} {
		require.Equal(t, want, q.For(tenant), "%q", tenant)
	}
	require.Zero(t, Quotas{}.For("a"))
}
