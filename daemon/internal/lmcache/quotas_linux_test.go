package lmcache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuotasHaveABound: of their number, and one that is there can be changed.
func TestQuotasHaveABound(t *testing.T) {
	s := newBed(t, nil).server
	s.state.Quotas = map[string]int64{}
	for n := range maxQuotas - 1 {
		s.state.Quotas[fmt.Sprint(n)] = 1
	}
	require.NoError(t, s.SetQuota("last", 1))
	require.ErrorIs(t, s.SetQuota("more", 1), ErrQuotas)
	require.NoError(t, s.SetQuota("last", 2))
	require.Len(t, s.Quotas(), maxQuotas)
	require.EqualValues(t, 2, s.Quotas()["last"])
	for _, there := range []bool{true, false} {
		removed, err := s.RemoveQuota("0")
		require.NoError(t, err)
		require.Equal(t, there, removed)
	}
	require.NoError(t, s.SetQuota("more", 1))
}
