package daemon

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// respConfig is a configuration with a TCP address and a socket for clients of Redis, and a password.
func respConfig(t testing.TB) (c Config, address, socket string) {
	t.Helper()
	c = testConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	address, socket = l.Addr().String(), filepath.Join(filepath.Dir(c.Socket), "resp")
	c.RESP = []string{address, "unix://" + socket}
	c.RESPPasswordFile = filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(c.RESPPasswordFile, []byte("secret\n"), 0o600))
	return c, address, socket
}

// TestRESPInTheDaemon: values outlive the daemon, and what EXISTS pins does not.
func TestRESPInTheDaemon(t *testing.T) {
	c, address, socket := respConfig(t)
	d := start(t, c)
	ctx := t.Context()
	wrong := redis.NewClient(&redis.Options{Addr: address, Password: "other", MaxRetries: -1})
	require.ErrorContains(t, wrong.Get(ctx, "k").Err(), "WRONGPASS")
	require.NoError(t, wrong.Close())
	clients := []*redis.Client{
		redis.NewClient(&redis.Options{Addr: address, Password: "secret", Protocol: 2}),
		redis.NewClient(&redis.Options{
			Network: "unix", Addr: socket, Username: "default", Password: "secret", Protocol: 3,
		}),
	}
	for _, client := range clients {
		require.NoError(t, client.Set(ctx, "k", "value", 0).Err())
		require.Equal(t, "value", client.Get(ctx, "k").Val())
		require.EqualValues(t, 1, client.Exists(ctx, "k").Val())
		require.ErrorContains(t, client.FlushDB(ctx).Err(), "NOPERM")
	}
	require.EqualValues(t, len("value"), d.registry.Counts().Held, "EXISTS pins it once")
	require.EqualValues(t, 2, d.values[0].protocol.Counts().Connections, "those of clients, not what pins")
	require.NoError(t, d.registry.Check())
	d.end(t)

	d = start(t, c)
	for _, client := range clients {
		require.Equal(t, "value", client.Get(ctx, "k").Val())
		require.NoError(t, client.Close())
	}
	require.Eventually(t, func() bool { return d.registry.Counts().Held == 0 }, 5*time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return d.registry.Counts().Connected == 1 }, 5*time.Minute, time.Millisecond,
		"that of the pins")
	require.NoError(t, d.registry.Check())
	d.end(t)
}

// TestSettingsOfRESP: what can't be is refused, and the password is not shown.
func TestSettingsOfRESP(t *testing.T) {
	c := testConfig(t)
	c.RESPFlush = true
	require.ErrorContains(t, c.Validate(), "name an address by resp")
	c.RESP = []string{"0.0.0.0:6379"}
	require.ErrorContains(t, c.Validate(), "values-any")
	c.ValuesAny = true
	require.NoError(t, c.Validate())
	c.RESPPasswordFile = filepath.Join(t.TempDir(), "none")
	require.ErrorContains(t, c.Validate(), "resp-password-file")
	c.RESPPasswordFile, c.RESPUser = "", ""
	require.ErrorContains(t, c.Validate(), "resp-user")
	c.RESPUser, c.MaxLease, c.DefaultLease = "default", time.Minute, time.Minute
	require.ErrorContains(t, c.Validate(), "max-lease", "it would end while a value is moved, which may take longer")
	c.RESP, c.RESPFlush = nil, false
	require.NoError(t, c.Validate())

	loaded, err := Sources{
		Flags: map[string]string{"resp": "127.0.0.1:6379"}, Environ: []string{"LMCACHE_RESP_PASSWORD=hidden"},
	}.Load()
	require.NoError(t, err)
	secret, err := respSecret(loaded)
	require.NoError(t, err)
	require.Equal(t, "hidden", secret.reveal())
	loaded, err = Sources{Environ: []string{"LMCACHE_RESP_PASSWORD=hidden"}}.Load()
	require.NoError(t, err)
	require.Empty(t, loaded.respPassword.reveal(), "it is another program's without resp")
}
