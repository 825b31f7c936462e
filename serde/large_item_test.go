package serde

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// However many elems an item has, each key is there once, wherever the other one is.
func TestKeyTwiceInALargeItemIsRefused(t *testing.T) {
	for _, n := range []int{2, smallItem, smallItem + 1, 100} {
		it := &Item{Elems: make([]Elem, n)}
		for i := range it.Elems {
			it.Elems[i] = Elem{Key: fmt.Sprint("key ", i), Data: int64(i)}
		}
		_, err := NewPlan(it, Options{})
		require.NoError(t, err)
		for _, first := range []int{0, n - 2} {
			it.Elems[n-1].Key = it.Elems[first].Key
			_, err := NewPlan(it, Options{})
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, fmt.Sprintf("two elems have the key %q", it.Elems[first].Key))
		}
	}
}
