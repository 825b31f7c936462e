package lrusync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
)

// Every invariant can be broken, and CheckStructure reports it.
func TestCheckStructureFinds(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*mirror[int])
		text   string
	}{
		"nothing":             {func(*mirror[int]) {}, ""},
		"a broken link":       {func(m *mirror[int]) { m.order.next.prev = m.order.next }, `the links of "a" are broken`},
		"not in the map":      {func(m *mirror[int]) { delete(m.entries, "b") }, `"b" is in the order of use but not in its map`},
		"not in the order":    {func(m *mirror[int]) { m.entries["b"].unlink() }, "1 entries and 0 ghosts in order, 2 and 0 in the maps"},
		"a pinned ghost":      {func(m *mirror[int]) { m.touchGhost("g"); m.ghosts["g"].pinned = true }, `"g" is in the order of use`},
		"lost bytes":          {func(m *mirror[int]) { m.size-- }, "the entries have 5 bytes, 4 are accounted"},
		"too many bytes":      {func(m *mirror[int]) { m.capacity = 4 }, "5 bytes in a cache of 4"},
		"an open transaction": {func(m *mirror[int]) { m.begin() }, "a transaction was left open"},
		"a ghost":             {func(m *mirror[int]) { m.touchGhost("g") }, "a request left 1 ghosts"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newMirror[int](Options{Capacity: 10})
			require.NoError(t, err)
			require.NoError(t, m.Put("a", 1, 2))
			require.NoError(t, m.Put("b", 2, 3))
			c.damage(m)
			if c.text == "" {
				require.NoError(t, m.checkSettled())
				return
			}
			require.ErrorContains(t, m.checkSettled(), c.text)
		})
	}
}

// Builds that check invariants do so after a change.
func TestChangesAreChecked(t *testing.T) {
	l := NewLRU(10, LRUOptions[int]{})
	require.NoError(t, l.Put("a", 1, 2))
	l.size++
	touch := func() { l.Touch("a") }
	if !invariants.Enabled {
		require.NotPanics(t, touch)
		return
	}
	require.PanicsWithError(t, "broken invariant: lrusync: the entries have 2 bytes, 3 are accounted", touch)
}
