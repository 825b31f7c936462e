package shmstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

// A quota is the largest number of bytes that the chunks of a tenant may take, and they may take as many.
func TestTenantFillsItsQuotaToTheLastByte(t *testing.T) {
	probe := private(t, shmstore.Options{Size: 16 << 10})
	_, err := begin(t, probe, "r").Put("a", make([]byte, 1000), shmstore.PutOptions{Tenant: "t"})
	require.NoError(t, err)
	st, err := probe.Inspect(nil)
	require.NoError(t, err)
	one := st.Used

	s := private(t, shmstore.Options{Size: 16 << 10, Quota: 3 * one})
	r := begin(t, s, "r")
	for _, key := range []string{"a", "b", "c"} {
		_, err := r.Put(key, make([]byte, 1000), shmstore.PutOptions{Tenant: "t"})
		require.NoError(t, err, key)
	}
	_, err = r.Put("d", make([]byte, 1), shmstore.PutOptions{Tenant: "t"})
	require.ErrorIs(t, err, shmring.ErrFull)
	var full *shmstore.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, "t", full.Tenant)
	require.EqualValues(t, full.Size, full.Used)
}
