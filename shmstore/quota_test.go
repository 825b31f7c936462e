package shmstore_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// forTenant puts an object of a tenant, which nobody keeps.
func forTenant(t testing.TB, s *shmstore.Store, tenant, key string, n int) error {
	t.Helper()
	r := begin(t, s, "of "+key)
	defer r.Rollback()
	_, err := r.Put(key, make([]byte, n), shmstore.PutOptions{Tenant: tenant})
	require.NoError(t, s.CheckStructure())
	return err
}

// TestQuotaCountsLossByTheByte: for the quota of a tenant went what it costs least to lose, whatever its bytes. So many
// small objects went before a large one of the same cost.
func TestQuotaCountsLossByTheByte(t *testing.T) {
	s := private(t, shmstore.Options{Size: 64 << 10, Quota: 12 << 10})
	require.NoError(t, forTenant(t, s, "t", "large", 8000))
	small := []string{"a", "b", "c", "d", "e"}
	for _, key := range small {
		require.NoError(t, forTenant(t, s, "t", key, 500))
	}
	require.NoError(t, forTenant(t, s, "t", "next", 3000))
	require.Equal(t, "abcde", which(s, append(small, "large")...))
}

// TestQuotasChange: a lower quota holds from the next put on, and a higher one wakes who waits.
func TestQuotasChange(t *testing.T) {
	s := private(t, shmstore.Options{Size: 64 << 10})
	for i := range 10 {
		require.NoError(t, forTenant(t, s, "t", fmt.Sprint(i), 900))
		require.NoError(t, forTenant(t, s, "other", fmt.Sprint("other ", i), 900))
	}
	s.SetQuotas(map[string]int64{"t": 3 << 10}, 0)
	require.Greater(t, s.Tenants()["t"], int64(3<<10), "until the next put")
	require.NoError(t, forTenant(t, s, "t", "next", 900))
	require.LessOrEqual(t, s.Tenants()["t"], int64(3<<10))
	require.Greater(t, s.Tenants()["other"], int64(9000))
	var large *shmstore.TooLargeError
	require.ErrorAs(t, forTenant(t, s, "t", "large", 4000), &large)

	r := begin(t, s, "holds")
	for i := range 3 {
		_, err := r.Put(fmt.Sprint("held ", i), make([]byte, 900), shmstore.PutOptions{Tenant: "t"})
		require.NoError(t, err)
	}
	_, err := r.Put("more", make([]byte, 900), shmstore.PutOptions{Tenant: "t"})
	require.ErrorIs(t, err, shmring.ErrFull)
	waits := begin(t, s, "waits")
	done := make(chan error, 1)
	go func() {
		_, err := waits.Put("waited", make([]byte, 900), shmstore.PutOptions{Tenant: "t", Wait: t.Context()})
		done <- err
	}()
	for mustStats(t, s).Waiting == 0 {
		runtime.Gosched()
	}
	s.SetQuotas(nil, 8<<10)
	require.NoError(t, <-done)
	r.Rollback()
	waits.Rollback()
}
