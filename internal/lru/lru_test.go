package lru_test

import (
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/lru"
	"github.com/ringcache/ringcache/internal/sentinel"
)

// sized is an LRU whose values are their own sizes.
type sized struct{ *lru.Cache[int64] }

func newSized(capacity float64, o lru.Options[int64]) sized {
	return sized{lru.New(capacity, o)}
}

func (l sized) put(key string, size int64) error { return l.Put(key, size, size) }

// String lists keys and sizes, oldest first, pinned ones with a star, and the
// sum: "A4 B3* 7".
func (l sized) String() string {
	var b strings.Builder
	for k, e := range l.All() {
		fmt.Fprint(&b, k, e.Size)
		if e.Pinned {
			b.WriteByte('*')
		}
		b.WriteByte(' ')
	}
	return fmt.Sprint(b.String(), l.Size())
}

// TestLRUVectors has the vectors of upstream's class over cachetools 7 and, where
// the outcome differs, over cachetools 8.
func TestLRUVectors(t *testing.T) {
	const tooLarge, allPinned = "value too large", "All items are pinned, cannot remove oldest from the cache."
	for _, tc := range []struct {
		name  string
		steps []string // key and size; "!" pins, "^" touches a key, before "=" comes the text of an error
		want7 []string
		want8 []string // nil: the same
	}{
		{
			"values that grow, shrink and do not fit",
			[]string{"B3", "A4", "C1", "A5", "A2", tooLarge + "=A11"},
			[]string{"B3 3", "B3 A4 7", "B3 A4 C1 8", "C1 A5 6", "C1 A2 3", "C1 A2 3"},
			[]string{"B3 3", "B3 A4 7", "B3 A4 C1 8", "B3 C1 A5 9", "B3 C1 A2 6", "B3 C1 A2 6"},
		},
		{
			"a value that grows out of its place",
			[]string{"A4", "B4", "A7"},
			[]string{"A4 4", "A4 B4 8", "A7 7"},
			nil,
		},
		{
			"pinned",
			[]string{"A4", "B4", "!A", "C4", "!C", allPinned + "=D8"},
			[]string{"A4 4", "A4 B4 8", "A4* B4 8", "A4* C4 8", "A4* C4* 8", "A4* C4* 8"},
			nil,
		},
		{
			"a pinned value that grows",
			[]string{"A4", "!A", "C4", "!C", "A5", "A7"},
			[]string{"A4 4", "A4* 4", "A4* C4 8", "A4* C4* 8", "", ""},
			[]string{"A4 4", "A4* 4", "A4* C4 8", "A4* C4* 8", "C4* A5* 9", ""},
		},
		{
			"touch",
			[]string{"A4", "B4", "^A", "^Z", "C4"},
			[]string{"A4 4", "A4 B4 8", "B4 A4 8", "B4 A4 8", "A4 C4 8"},
			nil,
		},
		{
			"equal size evicts nothing",
			[]string{"A5", "B5", "A5"},
			[]string{"A5 5", "A5 B5 10", "B5 A5 10"},
			nil,
		},
	} {
		for _, anew := range []bool{true, false} {
			want := tc.want7
			if !anew && tc.want8 != nil {
				want = tc.want8
			}
			t.Run(fmt.Sprintf("%s/GrowAnew=%t", tc.name, anew), func(t *testing.T) {
				l := newSized(10, lru.Options[int64]{GrowAnew: anew})
				for i, step := range tc.steps {
					text, step, _ := strings.Cut("="+step, "=")
					if before, after, ok := strings.Cut(step, "="); ok {
						text, step = before, after
					}
					var err error
					switch step[0] {
					case '!':
						require.True(t, l.Pin(step[1:]))
					case '^':
						l.Touch(step[1:])
					default:
						err = l.put(step[:1], number(t, step[1:]))
					}
					if want[i] == "" {
						text = allPinned
					} else {
						require.Equal(t, want[i], l.String(), step)
					}
					require.Equal(t, text, sentinel.UpstreamText(err), step)
					require.NoError(t, l.CheckStructure())
				}
			})
		}
	}
}

func number(t *testing.T, s string) (n int64) {
	_, err := fmt.Sscan(s, &n)
	require.NoError(t, err)
	return n
}

func TestLRUStats(t *testing.T) {
	l := newSized(10, lru.Options[int64]{})
	require.NoError(t, l.put("A", 4))
	stats := func(hits, total int64) {
		t.Helper()
		h, q := l.Stats()
		require.Equal(t, []int64{hits, total}, []int64{h, q})
	}
	l.Pop("Z")
	stats(0, 0)
	l.Get("A")
	stats(1, 1)
	l.Get("Z")
	stats(1, 2)
	l.Has("A")
	l.Peek("A")
	l.Touch("A")
	stats(1, 2)
	l.Get("A")
	stats(2, 3)
	l.Clear()
	stats(0, 0)
}

func TestLRUOnRemove(t *testing.T) {
	var removed []string
	l := newSized(10, lru.Options[int64]{OnRemove: func(k string, v int64) { removed = append(removed, fmt.Sprint(k, v)) }})
	for _, k := range []string{"A", "B", "C"} {
		require.NoError(t, l.put(k, 3))
	}
	require.NoError(t, l.put("A", 2)) // replaced, not removed
	require.Empty(t, removed)
	require.NoError(t, l.put("D", 5))
	require.Equal(t, []string{"B3"}, removed)
	l.Pop("C")
	l.Pop("A")
	l.Pin("D")
	l.Clear()
	require.Equal(t, []string{"B3", "C3", "A2", "D5"}, removed)
}

func TestLRUFractionOfCapacity(t *testing.T) {
	l := newSized(10.5, lru.Options[int64]{})
	requireTooLarge(t, l.put("A", 11), lru.TooLargeError{Key: "A", Size: 11, Capacity: 10.5})
	require.NoError(t, l.put("A", 10))
	require.NoError(t, l.put("B", 0))
	require.Equal(t, "A10 B0 10", l.String())
	require.NoError(t, l.put("C", 1))
	require.Equal(t, "B0 C1 1", l.String())

	none := newSized(0, lru.Options[int64]{})
	requireTooLarge(t, none.put("A", 1), lru.TooLargeError{Key: "A", Size: 1})
	require.NoError(t, none.put("A", 0))
}

func requireTooLarge(t *testing.T, err error, want lru.TooLargeError) {
	t.Helper()
	var got *lru.TooLargeError
	require.ErrorAs(t, err, &got)
	require.Equal(t, want, *got)
	require.ErrorIs(t, err, lru.ErrTooLarge)
}

func TestLRURefusesNegativeSizes(t *testing.T) {
	l := newSized(10, lru.Options[int64]{})
	require.NoError(t, l.put("A", 4))
	err := l.put("A", -1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, `size -1 of key "A"`)
	require.Equal(t, "A4 4", l.String())
}

func TestUnpin(t *testing.T) {
	l := newSized(10, lru.Options[int64]{})
	require.NoError(t, l.put("A", 10))
	require.True(t, l.Pin("A"))
	require.ErrorIs(t, l.put("B", 1), lru.ErrPinned)
	l.Unpin("A")
	l.Unpin("Z")
	require.NoError(t, l.put("B", 1))
	require.Equal(t, "B1 1", l.String())
}

// A ghost is what vLLM 0.12 to 0.23 leave of an absent key that they touch. It
// hangs the eviction that comes across it, unless the key was stored by then.
func TestGhosts(t *testing.T) {
	l := newSized(10, lru.Options[int64]{})
	require.NoError(t, l.put("A", 4))
	l.TouchGhost("G")
	require.NoError(t, l.put("B", 6))
	require.Equal(t, "A4 B6 10", l.String(), "a ghost has no size and is not listed")
	require.False(t, l.Has("G"))
	require.False(t, l.Pin("G"))
	require.NoError(t, l.put("C", 4), "A is older than the ghost")
	var ghost *lru.HangError
	require.ErrorAs(t, l.put("D", 1), &ghost)
	require.Equal(t, "G", ghost.Key)
	l.TouchGhost("G")
	require.NoError(t, l.put("D", 1), "now B is older")
	require.Equal(t, "C4 D1 5", l.String())
	require.NoError(t, l.put("G", 5), "a ghost that gets a value is one no more")
	require.Equal(t, "C4 D1 G5 10", l.String())
	require.NoError(t, l.CheckStructure())
	l.TouchGhost("H")
	l.Clear()
	require.NoError(t, l.put("A", 10))
	require.NoError(t, l.put("B", 10), "clearing removes ghosts")
	require.NoError(t, l.CheckStructure())
}

// A capacity near the end of int64 made the sum of two sizes negative, so that
// both fitted.
func TestSizesDoNotOverflow(t *testing.T) {
	const most = 1 << 62
	for _, capacity := range []float64{most, math.MaxInt64, math.Inf(1)} {
		l := newSized(capacity, lru.Options[int64]{})
		size := int64(math.Nextafter(min(capacity, math.MaxInt64), 0))
		require.NoError(t, l.put("A", size))
		require.NoError(t, l.put("B", size))
		require.Equal(t, fmt.Sprintf("B%d %d", size, size), l.String())
		require.NoError(t, l.CheckStructure())
	}
}
