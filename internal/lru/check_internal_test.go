package lru

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
)

// Every invariant can be broken, and CheckStructure reports it.
func TestCheckStructureFinds(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*Cache[int])
		text   string
	}{
		"nothing":             {func(*Cache[int]) {}, ""},
		"a broken link":       {func(l *Cache[int]) { l.order.next.prev = l.order.next }, `the links of "a" are broken`},
		"not in the map":      {func(l *Cache[int]) { delete(l.entries, "b") }, `"b" is in the order of use but not in its map`},
		"not in the order":    {func(l *Cache[int]) { l.entries["b"].unlink() }, "1 entries and 0 ghosts in order, 2 and 0 in the maps"},
		"a pinned ghost":      {func(l *Cache[int]) { l.TouchGhost("g"); l.ghosts["g"].pinned = true }, `"g" is in the order of use`},
		"lost bytes":          {func(l *Cache[int]) { l.size-- }, "the entries have 5 bytes, 4 are accounted"},
		"too many bytes":      {func(l *Cache[int]) { l.capacity = 4 }, "5 bytes in a cache of 4"},
		"an open transaction": {func(l *Cache[int]) { l.Begin() }, "a transaction was left open"},
		"a ghost":             {func(l *Cache[int]) { l.TouchGhost("g") }, "a request left 1 ghosts"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(10, Options[int]{})
			require.NoError(t, l.Put("a", 1, 2))
			require.NoError(t, l.Put("b", 2, 3))
			c.damage(l)
			if c.text == "" {
				require.NoError(t, l.CheckSettled())
				return
			}
			require.ErrorContains(t, l.CheckSettled(), c.text)
		})
	}
}

// Builds that check invariants do so after a change.
func TestChangesAreChecked(t *testing.T) {
	l := New(10, Options[int]{})
	require.NoError(t, l.Put("a", 1, 2))
	l.size++
	touch := func() { l.Touch("a") }
	if !invariants.Enabled {
		require.NotPanics(t, touch)
		return
	}
	require.PanicsWithError(t, "broken invariant: lrusync: the entries have 2 bytes, 3 are accounted", touch)
}
