package kv

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// store is which chunks are there, by group, worker and chunk.
type store [][][]bool

func (s store) exists(group, worker, first int, found []bool) error {
	copy(found, s[group][worker][first:])
	return nil
}

// fits reports whether a prefix of n chunks can be loaded, by the words of the rule.
func (s store) fits(windows []int, start, n int) bool {
	for group, window := range windows {
		for worker := range s[group] {
			for chunk := start; chunk < n; chunk++ {
				if (window == 0 || chunk >= n-window) && !s[group][worker][chunk] {
					return false
				}
			}
		}
	}
	return true
}

// TestLongestPrefixIsThatOfBruteForce also shows that nothing is asked twice, nor in front of start.
func TestLongestPrefixIsThatOfBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		windows := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 3).Draw(t, "windows")
		workers, end := rapid.IntRange(1, 3).Draw(t, "workers"), rapid.IntRange(0, 10).Draw(t, "end")
		start := rapid.IntRange(0, end+2).Draw(t, "start")
		s := make(store, len(windows))
		for group := range s {
			for range workers {
				row := make([]bool, end)
				for i := range row {
					row[i] = rapid.IntRange(0, 5).Draw(t, "there") > 0
				}
				s[group] = append(s[group], row)
			}
		}
		want := min(start, end)
		for n := want; n <= end; n++ { // one may fit behind one that does not
			if s.fits(windows, min(start, end), n) {
				want = n
			}
		}
		asked := map[[2]int]bool{}
		got, err := LongestPrefix(windows, workers, start, end, func(group, worker, first int, found []bool) error {
			require.False(t, asked[[2]int{group, worker}], "asked once")
			asked[[2]int{group, worker}] = true
			require.Equal(t, start, first)
			require.NotEmpty(t, found)
			require.NotContains(t, found, true)
			return s.exists(group, worker, first, found)
		})
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// TestLongestPrefixOfLMCache has what the stock server of 0.5.7rc2 answered.
func TestLongestPrefixOfLMCache(t *testing.T) {
	everything, nothing := store{{{true, true, true}}}, store{{{false, false, false}}}
	for _, c := range []struct {
		what       string
		windows    []int
		store      store
		start, end int
		want       int
	}{
		{"both chunks are there", []int{0}, everything, 1, 2, 2},
		{"nothing is there: start", []int{0}, nothing, 1, 2, 1},
		{"start is the end", []int{0}, nothing, 2, 2, 2},
		{"start is behind the end", []int{0}, everything, 3, 2, 2},
		{"only the last chunk of the group with a window of 1", []int{0, 1}, store{{{true, true, true}}, {{false, false, true}}}, 0, 3, 3},
		{"and a shorter request", []int{0, 1}, store{{{true, true, true}}, {{false, false, true}}}, 0, 2, 0},
		{"the worst of two workers", []int{0}, store{{{true, true, true}, {true, false, true}}}, 0, 3, 1},
	} {
		got, err := LongestPrefix(c.windows, len(c.store[0]), c.start, c.end, c.store.exists)
		require.NoError(t, err)
		require.Equal(t, c.want, got, c.what)
	}
}

func TestRefusedLookups(t *testing.T) {
	no := func(int, int, int, []bool) error { t.Fatal("asked"); return nil }
	for _, c := range []struct {
		windows             []int
		workers, start, end int
	}{{nil, 1, 0, 1}, {make([]int, 65), 1, 0, 1}, {[]int{-1}, 1, 0, 1}, {[]int{0}, 0, 0, 1}, {[]int{0}, 256, 0, 1}, {[]int{0}, 1, -1, 1}, {[]int{0}, 1, 0, -1}} {
		_, err := LongestPrefix(c.windows, c.workers, c.start, c.end, no)
		require.ErrorIs(t, err, fs.ErrInvalid, "%+v", c)
	}
	n, err := LongestPrefix([]int{0}, 1, 0, 0, no)
	require.NoError(t, err)
	require.Zero(t, n)
	down := errors.New("down")
	_, err = LongestPrefix([]int{0}, 1, 0, 1, func(int, int, int, []bool) error { return down })
	require.ErrorIs(t, err, down)
}
