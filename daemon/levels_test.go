package daemon

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// openLevels opens the levels of a configuration, and closes them with the test.
func openLevels(t *testing.T, c Config) *levels {
	t.Helper()
	l, err := c.open(context.Background(), quiet(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.close()) })
	return l
}

// put stores an object of a tenant in memory.
func put(t *testing.T, l *levels, name, tenant string, size int) error {
	t.Helper()
	puts := []tier.Put{{Object: tier.Object{Key: tier.Key{Space: "s", Name: name}, Size: int64(size), Tenant: tenant}, Bytes: make([]byte, size)}}
	l.memory.Put(context.Background(), puts) // the store would store it below
	return puts[0].Err
}

// usage is what the levels below memory have.
func usage(l *levels) (objects []int64) {
	for _, x := range l.lower {
		objects = append(objects, x.Usage().Objects)
	}
	return objects
}

func TestDiskIsWrittenAsConfigured(t *testing.T) {
	for write, want := range map[string]int64{"back": 1, "around": 0} {
		t.Run(write, func(t *testing.T) {
			c := testConfig(t)
			c.DiskWrite = write
			l := openLevels(t, c)
			l.store.Put(context.Background(), []tier.Put{{Object: tier.Object{Key: tier.Key{Space: "s", Name: "n"}, Size: 3}, Bytes: []byte("abc")}})
			_, err := l.store.Drain(context.Background())
			require.NoError(t, err)
			require.Equal(t, []int64{want}, usage(l))
		})
	}
}

func TestDiskHasItsSize(t *testing.T) {
	c := testConfig(t)
	c.DiskSize = 12345678
	require.Equal(t, int64(12345678), openLevels(t, c).lower[0].Usage().Capacity)
}

// TestQuotas: one for each tenant, and others for those that are named.
func TestQuotas(t *testing.T) {
	c := testConfig(t)
	c.Quota, c.Quotas = 4000, []string{"large=100KiB"}
	l := openLevels(t, c)
	require.NoError(t, put(t, l, "a", "small", 2000))
	require.ErrorIs(t, put(t, l, "b", "small", 20000), tier.ErrTooLarge)
	require.NoError(t, put(t, l, "c", "large", 20000))
	require.NoError(t, put(t, l, "d", "", 20000), "nobody's")
}

// TestRedisWithItsPassword, which is in a file.
func TestRedisWithItsPassword(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "sesame")
	c := testConfig(t)
	c.Disk, c.Redis, c.RedisPasswordFile = "", server.Addr(), write(t, "sesame\n")
	l := openLevels(t, c)
	l.store.Put(context.Background(), []tier.Put{{Object: tier.Object{Key: tier.Key{Space: "s", Name: "n"}, Size: 3}, Bytes: []byte("abc")}})
	_, err := l.store.Drain(context.Background())
	require.NoError(t, err)
	found := l.lower[0].Stat(context.Background(), []tier.Key{{Space: "s", Name: "n"}})
	require.NoError(t, found[0].Err)

	wrong := testConfig(t)
	wrong.Disk, wrong.Redis, wrong.RedisPasswordFile = "", server.Addr(), write(t, "open")
	_, err = wrong.open(context.Background(), quiet(), nil)
	require.ErrorContains(t, err, "redis "+server.Addr())
	require.NotContains(t, err.Error(), "open:")
}

// TestRedisThatIsAway is no reason not to start.
func TestRedisThatIsAway(t *testing.T) {
	c := testConfig(t)
	c.Redis = "unix://" + socketPath(t)
	l := openLevels(t, c)
	require.Len(t, l.lower, 2)
	require.Equal(t, "disk", l.lower[0].Name())
	require.Equal(t, "redis", l.lower[1].Name())
}

func TestServerGetsItsOptions(t *testing.T) {
	r := testRunner(t)
	r.config.Grace, r.config.MaxConnections, r.config.MaxSessions, r.config.MaxSessionLeases = 7*time.Minute, 2, 3, 4
	r.config.MaxHeld, r.config.MaxLease, r.config.DefaultLease = 5, 6*time.Second, 7*time.Second
	o := r.serverOptions()
	require.Equal(t, 7*time.Minute, o.Grace)
	require.Equal(t, Limits{MaxConnections: 2, MaxSessions: 3, MaxLeases: 4, MaxHeld: 5, MaxLease: 6 * time.Second, DefaultLease: 7 * time.Second}, o.Limits)
	require.Equal(t, r.config.ShmDir, o.ShmDir)
	require.Equal(t, "ringcache test", o.Version)
	require.NotNil(t, o.Logger)
	require.NotNil(t, o.Store)
	require.NotNil(t, o.Memory)
}

// TestRunIsValidatedFirst, and ends with its context.
func TestRunIsValidatedFirst(t *testing.T) {
	c := testConfig(t)
	bad := c
	bad.Size = 0
	var wrong *ConfigError
	require.ErrorAs(t, Run(context.Background(), RunOptions{Config: bad, Log: io.Discard}), &wrong)
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, Run(ctx, RunOptions{Config: c, Log: cancelAt{"serving", cancel}}))
	cancel()
	require.NoError(t, Run(ctx, RunOptions{Config: c, Log: io.Discard}), "a context that has ended is no failure")
}

// cancelAt cancels when a text is logged.
type cancelAt struct {
	text   string
	cancel func()
}

func (c cancelAt) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) {
		c.cancel()
	}
	return len(b), nil
}
