package daemon

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestQuotasOfTenants: in memory and on the disk a tenant has what its settings say, and a reload changes both.
func TestQuotasOfTenants(t *testing.T) {
	c := testConfig(t)
	c.DiskQuota, c.DiskQuotas = 64<<10, []string{"large=256KiB"}
	c.Quota, c.Quotas = 16<<10, []string{"large=128KiB"}
	r := newRunner(RunOptions{Config: c, Log: io.Discard})
	var err error
	r.levels, err = c.open(t.Context(), r.log, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.levels.close()) })
	n := 0
	store := func(tenant string, bytes int) {
		t.Helper()
		for range bytes / 4000 {
			n++
			p := []tier.Put{{Object: tier.Object{Key: tier.Key{Name: fmt.Sprint(n)}, Size: 4000, Tenant: tenant}, Bytes: make([]byte, 4000)}}
			r.levels.store.Put(t.Context(), p)
			require.NoError(t, p[0].Err)
			_, err := r.levels.store.Drain(t.Context()) // pending writes can't be evicted
			require.NoError(t, err)
		}
	}
	// is requires that a tenant has nearly as much as its quotas.
	is := func(tenant string, memory, disk int64) {
		t.Helper()
		for level, most := range map[tier.Level]int64{r.levels.memory: memory, r.levels.lower[0]: disk} {
			has := level.Usage().Tenants[tenant]
			require.LessOrEqual(t, has, most, "%s has in %s", tenant, level.Name())
			require.Greater(t, has, most-9000, "%s has in %s", tenant, level.Name())
		}
	}
	store("small", 200<<10)
	store("large", 400<<10)
	is("small", 16<<10, 64<<10)
	is("large", 128<<10, 256<<10)

	next := c
	next.Quota, next.DiskQuota, next.Quotas, next.DiskQuotas = 32<<10, 96<<10, nil, []string{"small=32KiB"}
	r.server, err = NewServer(ServerOptions{Store: r.levels.store, Memory: r.levels.memory, ShmDir: c.ShmDir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.server.Shutdown(context.Background())) })
	r.o.Reload = func() (Config, error) { return next, nil }
	changed, err := r.tryReload()
	require.NoError(t, err)
	require.Equal(t, []string{"quota", "quotas", "disk-quota", "disk-quotas"}, changed)
	store("small", 200<<10)
	store("large", 400<<10)
	is("small", 32<<10, 32<<10)
	is("large", 32<<10, 96<<10)
}
