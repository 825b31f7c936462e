package invariants_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/invariants"
)

func TestMust(t *testing.T) {
	require.NotPanics(t, func() { invariants.Must(nil) })
	broken := func() { invariants.Must(errors.New("3 bytes are lost")) }
	if !invariants.Enabled {
		require.NotPanics(t, broken)
		return
	}
	require.PanicsWithError(t, "broken invariant: 3 bytes are lost", broken)
}

func TestSometimes(t *testing.T) {
	require.False(t, invariants.Sometimes(0))
	require.Equal(t, invariants.Enabled, invariants.Sometimes(100))
}
