package daemon

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// storeAs stores objects of a tenant, of 4000 bytes each, and waits until they are in all levels.
func storeAs(t *testing.T, r *runner, tenant string, from, n int) {
	t.Helper()
	for i := range n {
		p := []tier.Put{{Object: tier.Object{Key: tier.Key{Name: fmt.Sprint(tenant, from+i)}, Size: 4000, Tenant: tenant}, Bytes: make([]byte, 4000)}}
		r.levels.store.Put(t.Context(), p)
		require.NoError(t, p[0].Err)
		_, err := r.levels.store.Drain(t.Context())
		require.NoError(t, err)
	}
}

// TestQuotasByHTTP: what LMCache's tools send and read, in force at the disk if there is one, above the settings, and
// after a reload too.
func TestQuotasByHTTP(t *testing.T) {
	for name, disk := range map[string]bool{"memory": false, "disk": true} {
		t.Run(name, func(t *testing.T) {
			r := lmcacheRunner(t, func(c *Config) {
				c.Quotas, c.DiskQuotas = []string{"configured=64KiB"}, []string{"configured=64KiB", "free=0"}
				c.Quota, c.DiskQuota = 48<<10, 48<<10
				if !disk {
					c.Disk, c.DiskSize, c.DiskQuota, c.DiskQuotas = "", 0, 0, nil
					c.Quotas = append(c.Quotas, "free=0")
				}
			})
			level := r.levels.bounded()
			require.Equal(t, name, level.Name())
			ask := func(method, path, body string, want int) map[string]any {
				t.Helper()
				code, v := askJSON(t, r, method, path, body)
				require.Equal(t, want, code, v)
				return v
			}
			has := func(salt string, most int64) {
				t.Helper()
				n := level.Usage().Tenants[salt]
				require.LessOrEqual(t, n, most)
				require.Greater(t, n, most-9000)
			}
			require.Equal(t, map[string]any{"cache_salt": "new", "limit_gb": 48.0 / (1 << 20), "current_usage_gb": 0.0, "exists": false, "level": name},
				ask("GET", "/quota/new", "", 200), "the quota of each tenant")
			require.Equal(t, map[string]any{"cache_salt": "free", "limit_gb": nil, "current_usage_gb": 0.0, "exists": true, "level": name},
				ask("GET", "/quota/free", "", 200), "no bound")
			require.Equal(t, map[string]any{"cache_salt": "_default", "limit_gb": nil, "current_usage_gb": 0.0, "exists": false, "level": name},
				ask("GET", "/quota/_default", "", 200))

			put := fmt.Sprintf(`{"limit_gb": %v}`, 24.0/(1<<20))
			require.Equal(t, map[string]any{"cache_salt": "a/ü b", "limit_gb": 24.0 / (1 << 20), "status": "ok"}, ask("PUT", "/quota/a%2F%C3%BC%20b", put, 200))
			ask("PUT", "/quota/configured", put, 200)
			for _, salt := range []string{"a/ü b", "configured", "new"} {
				storeAs(t, r, salt, 0, 20)
			}
			has("a/ü b", 24<<10)
			has("configured", 24<<10)
			has("new", 48<<10)
			users := ask("GET", "/quota", "", 200)["users"].(map[string]any)
			require.Len(t, users, 3)
			require.Equal(t, map[string]any{"limit_gb": 24.0 / (1 << 20), "current_usage_gb": float64(level.Usage().Tenants["configured"]) / (1 << 30)}, users["configured"])
			require.Contains(t, users, "a/ü b")
			require.Contains(t, users, "free")

			next := r.config
			next.Quotas, next.DiskQuotas = []string{"configured=32KiB"}, nil
			if disk {
				next.DiskQuotas = next.Quotas
			}
			r.o.Reload = func() (Config, error) { return next, nil }
			_, err := r.tryReload()
			require.NoError(t, err)
			require.Equal(t, 24.0/(1<<20), ask("GET", "/quota/configured", "", 200)["limit_gb"])

			require.Equal(t, map[string]any{"cache_salt": "configured", "status": "removed"}, ask("DELETE", "/quota/configured", "", 200))
			require.Equal(t, 32.0/(1<<20), ask("GET", "/quota/configured", "", 200)["limit_gb"], "what the reload has set")
			storeAs(t, r, "configured", 100, 20)
			has("configured", 32<<10)
			require.Contains(t, ask("DELETE", "/quota/configured", "", 409)["error"], "settings")
			require.Equal(t, map[string]any{"cache_salt": "nobody", "status": "not_found"}, ask("DELETE", "/quota/nobody", "", 200))

			for body, text := range map[string]string{
				`{`: "the body is not", `[]`: "the body is not", `{"limit_gb": "1"}`: "the body is not", `{"limit_gb": NaN}`: "the body is not",
				`{}`: "no limit_gb", `{"limit_gb": null}`: "no limit_gb", ``: "the body is not",
				`{"limit_gb": -1}`: "below 0", `{"limit_gb": 1e10}`: "more than there can be",
				`{"limit_gb": 0}`: "kv clear --salt", `{"limit_gb": 1e-12}`: "kv clear --salt",
			} {
				require.Contains(t, ask("PUT", "/quota/bad", body, 400)["error"], text, body)
			}
			ask("PUT", "/quota/_default", put, 400)
			ask("PUT", "/quota/"+strings.Repeat("s", 256), put, 400)
			ask("PUT", "/quota/a%00", put, 400)
			require.Len(t, ask("GET", "/quota", "", 200)["users"], 2)

			r.phase.Store(phaseDraining)
			require.Contains(t, ask("PUT", "/quota/late", put, 503)["error"], "draining")
			r.phase.Store(phaseServing)
		})
	}
}

// TestQuotasByHTTPOutliveTheDaemon: the next one has them from its first moment on, and those that nobody can have set
// are nothing.
func TestQuotasByHTTPOutliveTheDaemon(t *testing.T) {
	c, _ := lmcacheConfig(t)
	var r *runner
	t.Run("set", func(t *testing.T) {
		r = lmcacheRunner(t, func(of *Config) { *of = c })
		r.levels.fresh = false // it serves, so the segment stays
		code, _ := askJSON(t, r, "PUT", "/quota/alice", `{"limit_gb": 0.5}`)
		require.Equal(t, 200, code)
		kept, err := os.ReadFile(lmcacheFile(c))
		require.NoError(t, err)
		require.Contains(t, string(kept), `"quotas":{"disk":{"alice":536870912}}`, "written before the answer: a kill loses none")
		next := strings.Replace(string(kept), `"disk":{`, `"disk":{"":5,"b":0,"c":-1,"`+strings.Repeat("d", 256)+`":7,`, 1)
		require.NoError(t, os.WriteFile(lmcacheFile(c), []byte(next), 0o600))
	})
	r = lmcacheRunner(t, func(of *Config) { *of = c })
	_, v := askJSON(t, r, "GET", "/quota", "")
	require.Equal(t, map[string]any{"users": map[string]any{"alice": map[string]any{"limit_gb": 0.5, "current_usage_gb": 0.0}}}, v)
	code, v := askJSON(t, r, "DELETE", "/quota/alice", "")
	require.Equal(t, 200, code)
	require.Equal(t, "removed", v["status"])
	require.Empty(t, r.lmcache.server.Quotas(r.levels.bounded().Name()))
}

// TestQuotaOfASaltThatIsNoText: the file is JSON, where such bytes are one and the same character, so the
// quota would be another salt's after a kill.
func TestQuotaOfASaltThatIsNoText(t *testing.T) {
	r := lmcacheRunner(t, nil)
	code, v := askJSON(t, r, "PUT", "/quota/%FF", `{"limit_gb": 1}`)
	require.Equal(t, 400, code, v)
	require.Contains(t, v["error"], "UTF-8")
	require.Empty(t, r.lmcache.server.Quotas(r.levels.bounded().Name()))
}

// TestQuotaThatCanNotBeKept: an answer of success would be undone by a kill.
func TestQuotaThatCanNotBeKept(t *testing.T) {
	r := lmcacheRunner(t, nil)
	code, v := askJSON(t, r, "PUT", "/quota/kept", `{"limit_gb": 1}`)
	require.Equal(t, 200, code, v)
	require.NoError(t, os.MkdirAll(filepath.Join(lmcacheFile(r.config)+".new", "in the way"), 0o700))
	for _, method := range []string{"PUT", "PUT", "DELETE", "DELETE"} {
		code, v = askJSON(t, r, method, "/quota/kept", `{"limit_gb": 2}`)
		require.Equal(t, 500, code, v)
		require.Contains(t, v["error"], "after a restart")
	}
	require.NoError(t, os.RemoveAll(lmcacheFile(r.config)+".new"))
	code, v = askJSON(t, r, "DELETE", "/quota/kept", "")
	require.Equal(t, 200, code, v)
	file, err := os.ReadFile(lmcacheFile(r.config))
	require.NoError(t, err)
	require.NotContains(t, string(file), "kept")
}

// TestQuotaOfTheDiskIsNoneOfMemory: what was set for a disk does not lift the bound of memory when the daemon
// is started without the disk, and is there when it is started with it.
func TestQuotaOfTheDiskIsNoneOfMemory(t *testing.T) {
	c, _ := lmcacheConfig(t)
	c.Quotas = []string{"alice=32KiB"}
	run := func(name string, disk bool, do func(r *runner)) {
		t.Run(name, func(t *testing.T) {
			r := lmcacheRunner(t, func(of *Config) {
				if *of = c; !disk {
					of.Disk = ""
				}
			})
			r.levels.fresh = false
			do(r)
		})
	}
	limit := func(r *runner) any {
		_, v := askJSON(t, r, "GET", "/quota/alice", "")
		return v["limit_gb"]
	}
	run("set", true, func(r *runner) {
		code, v := askJSON(t, r, "PUT", "/quota/alice", `{"limit_gb": 100}`)
		require.Equal(t, 200, code, v)
	})
	run("without", false, func(r *runner) {
		require.Equal(t, 32.0/(1<<20), limit(r), "memory has 1 MiB")
	})
	run("again", true, func(r *runner) { require.Equal(t, 100.0, limit(r)) })
}

// TestQuotasByHTTPHoldBeforePendingWrites: a restart goes on with what is to be written as soon as the levels
// are open.
func TestQuotasByHTTPHoldBeforePendingWrites(t *testing.T) {
	c, _ := lmcacheConfig(t)
	c.DiskQuota = 32 << 10
	t.Run("set", func(t *testing.T) {
		r := lmcacheRunner(t, func(of *Config) { *of = c })
		r.levels.fresh = false
		code, v := askJSON(t, r, "PUT", "/quota/alice", `{"limit_gb": 1}`)
		require.Equal(t, 200, code, v)
		storeAs(t, r, "alice", 0, 20)
	})
	r := newRunner(RunOptions{Config: c, Log: io.Discard})
	var err error
	r.levels, err = c.open(t.Context(), r.log, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.levels.close()) })
	for _, err := range r.levels.disk().List(t.Context(), "") { // it waits until the disk knows what it has
		require.NoError(t, err)
	}
	storeAs(t, r, "alice", 20, 1)
	require.Greater(t, r.levels.disk().Usage().Tenants["alice"], int64(80_000), "nothing of it has gone")
}
