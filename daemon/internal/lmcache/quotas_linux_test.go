package lmcache

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuotasHaveABound: of their number, and one that is there can be changed.
func TestQuotasHaveABound(t *testing.T) {
	s := newBed(t, nil).server
	quotas := map[string]int64{}
	s.state.Quotas = map[string]map[string]int64{"disk": quotas}
	for n := range maxQuotas - 1 {
		quotas[fmt.Sprint(n)] = 1
	}
	require.NoError(t, s.SetQuota("disk", "last", 1))
	require.ErrorIs(t, s.SetQuota("disk", "more", 1), ErrQuotas)
	require.NoError(t, s.SetQuota("disk", "last", 2))
	require.Len(t, s.Quotas("disk"), maxQuotas)
	require.NoError(t, s.SetQuota("memory", "more", 1))
	require.EqualValues(t, 2, s.Quotas("disk")["last"])
	for _, there := range []bool{true, false} {
		removed, err := s.RemoveQuota("disk", "0")
		require.NoError(t, err)
		require.Equal(t, there, removed)
	}
	require.NoError(t, s.SetQuota("disk", "more", 1))
}
