package shapes_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shapes"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		shape []int
		size  int
		want  int
		ok    bool
	}{
		{nil, 4, 4, true},
		{[]int{2, 3}, 4, 24, true},
		{[]int{0, 3}, 4, 0, true},
		{[]int{3, 0}, 4, 0, true},
		{[]int{-1}, 1, 0, false},
		{[]int{0, -1}, 1, 0, false},
		{[]int{math.MaxInt}, 1, math.MaxInt, true},
		{[]int{math.MaxInt}, 2, 0, false},
		{[]int{math.MaxInt, math.MaxInt}, 1, 0, false},
		{[]int{0, math.MaxInt, math.MaxInt}, 1, 0, false}, // as in torch and numpy
		{make([]int, shapes.MaxDims), 1, 0, true},
		{make([]int, shapes.MaxDims+1), 1, 0, false},
	} {
		t.Run(fmt.Sprintf("%v of %d", c.shape, c.size), func(t *testing.T) {
			n, ok := shapes.Bytes(c.shape, c.size)
			require.Equal(t, c.ok, ok)
			require.Equal(t, c.want, n)
		})
	}
}
