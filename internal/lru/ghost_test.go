package lru_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/lru"
)

// A touch of a key that is not there leaves a ghost in the order, which upstream's class hangs at. It is gone as soon
// as the key comes.
func TestPutTakesThePlaceOfAGhost(t *testing.T) {
	l := newSized(2, lru.Options[int64]{})
	l.TouchGhost("A")
	require.NoError(t, l.put("A", 1))
	require.NoError(t, l.put("B", 1))
	require.NoError(t, l.put("C", 1), "A is the oldest")
	require.Equal(t, "B1 C1 2", l.String())
	require.NoError(t, l.CheckStructure())
}
