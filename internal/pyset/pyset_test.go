package pyset

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestGoldenOrders: the orders are those of CPython, after every history in testdata/orders.json.
func TestGoldenOrders(t *testing.T) {
	raw, err := os.ReadFile("testdata/orders.json")
	require.NoError(t, err)
	var golden struct {
		Python string
		Rows   [][3][]int
	}
	require.NoError(t, json.Unmarshal(raw, &golden))
	require.Len(t, golden.Rows, 300)
	unsorted, recopied := 0, 0
	for i, row := range golden.Rows {
		var s Set
		for _, op := range row[0] {
			if op < 0 {
				s.Remove(-op - 1)
			} else {
				s.Add(op)
			}
		}
		require.NoError(t, s.Check())
		require.Equal(t, row[1], order(&s), "row %d", i)
		c := s.Copy()
		require.NoError(t, c.Check())
		require.Equal(t, row[2], order(&c), "copy of row %d", i)
		if !slices.IsSorted(row[1]) {
			unsorted++
		}
		if !slices.Equal(row[1], row[2]) {
			recopied++
		}
	}
	// Histories whose order any set would have prove little.
	require.Greater(t, unsorted, 100)
	require.Greater(t, recopied, 50)
	t.Logf("%d sets of CPython %s, %d in no ascending order, %d in another order than their copy", len(golden.Rows), golden.Python, unsorted, recopied)
}

func order(s *Set) []int {
	out := []int{}
	for v := range s.All() {
		out = append(out, v)
	}
	return out
}

func TestMembersAreThoseOfAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		members := map[int]bool{}
		for range rapid.IntRange(0, 300).Draw(t, "changes") {
			v := rapid.IntRange(0, 70).Draw(t, "value")
			switch rapid.IntRange(0, 5).Draw(t, "change") {
			case 0, 1, 2:
				s.Add(v)
				members[v] = true
			case 3, 4:
				s.Remove(v)
				delete(members, v)
			case 5:
				s = s.Copy()
			}
			require.Equal(t, members[v], s.Has(v))
			require.Equal(t, len(members), s.Len())
			require.NoError(t, s.Check())
		}
		got := order(&s)
		slices.Sort(got)
		require.Equal(t, slices.Compact(slices.Clone(got)), got)
		require.Len(t, got, len(members))
	})
}

func TestLargeSet(t *testing.T) {
	var s Set
	for v := range 60_000 {
		s.Add(v)
	}
	require.NoError(t, s.Check())
	require.Equal(t, 60_000, s.Len())
	require.False(t, s.Has(-1))
	s.Remove(-1)
	require.Panics(t, func() { s.Add(-1) })
}
