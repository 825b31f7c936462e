package daemon

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeysOfHTTP: each key opens everything, in both forms; without one only probes are answered.
func TestKeysOfHTTP(t *testing.T) {
	r := testRunner(t)
	h := r.handler([]secret{secretOf("old key"), secretOf("new")})
	ask := func(path string, header ...string) *httptest.ResponseRecorder {
		w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(header); i += 2 {
			q.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(w, q)
		return w
	}
	for _, header := range [][]string{
		{"Authorization", "Bearer new"}, {"Authorization", "bearer old key"}, {"X-LMCache-API-Key", "new"},
		{"Authorization", "Bearer wrong", "X-LMCache-API-Key", "old key"},
	} {
		require.Equal(t, 200, ask("/metrics", header...).Code, header)
	}
	for _, header := range [][]string{
		nil, {"Authorization", "new"}, {"Authorization", "Basic new"}, {"Authorization", "Bearer"}, {"Authorization", "Bearer new "},
		{"X-LMCache-API-Key", ""}, {"X-LMCache-API-Key", "ne"}, {"X-LMCache-API-Key", "newer"},
	} {
		w := ask("/metrics", header...)
		require.Equal(t, http.StatusUnauthorized, w.Code, header)
		require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
		require.Contains(t, w.Body.String(), `{"detail":`)
		require.NotContains(t, w.Body.String(), "old key")
		for path, code := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404, "/healthcheck": 404, "/status": 401, "/cache/clear": 401, "/quota": 401, "/quota/a": 401, "/none": 401, "/healthz/../metrics": 401} {
			require.Equal(t, code, ask(path, header...).Code, path)
		}
	}
}

func texts(keys []secret) (out []string) {
	for _, k := range keys {
		out = append(out, k.reveal())
	}
	return out
}

// TestKeysAreReadFromFiles, and what can't be a key is refused.
func TestKeysAreReadFromFiles(t *testing.T) {
	c := testConfig(t)
	key := write(t, "the key \n")
	c.HTTPKeyFile = []string{key, write(t, "another")}
	keys, err := httpKeys(c)
	require.NoError(t, err)
	require.Equal(t, []string{"the key", "another"}, texts(keys))
	require.Contains(t, about(c.Check(t.Context()), "http")[0].Text, "is free, and one of 2 keys opens it")
	for _, file := range []string{filepath.Join(t.TempDir(), "none"), write(t, ""), write(t, " \n"), write(t, "a\nb\n"), t.TempDir()} {
		c.HTTPKeyFile = []string{file}
		require.ErrorContains(t, c.Validate(), "http-key-file: ", file)
	}
	c.HTTPKeyFile = make([]string, maxKeys+1)
	for i := range c.HTTPKeyFile {
		c.HTTPKeyFile[i] = key
	}
	require.ErrorContains(t, c.Validate(), "16 are the most")
}

// TestCacheIsNotClearedFromOtherMachines without a key.
func TestCacheIsNotClearedFromOtherMachines(t *testing.T) {
	flags := map[string]string{"http": "0.0.0.0:9401", "http-any": "true", "lmcache": "grpc://127.0.0.1:5555"}
	require.Contains(t, loadProblems(t, Sources{Flags: flags})[0], "http-key-file (default): other machines could clear the cache")
	flags["http-key-file"] = write(t, "key")
	_, err := Sources{Flags: flags}.Load()
	require.NoError(t, err)
	delete(flags, "http-key-file")
	delete(flags, "lmcache")
	_, err = Sources{Flags: flags}.Load()
	require.NoError(t, err, "there is nothing to clear")
}

// TestEnvironmentOfLMCache: what LMCache's own server reads is taken over where it means the same, if ours is not given,
// and if the daemon is in place of that server.
func TestEnvironmentOfLMCache(t *testing.T) {
	file, legacy, ours := write(t, "file"), write(t, "legacy file"), write(t, "ours")
	on := map[string]string{"lmcache": "grpc://127.0.0.1:5555"}
	load := func(flags map[string]string, environ ...string) Config {
		t.Helper()
		c, err := Sources{Flags: flags, Environ: environ}.Load()
		require.NoError(t, err)
		return c
	}
	keys := func(c Config) []string {
		t.Helper()
		k, err := httpKeys(c)
		require.NoError(t, err)
		return texts(k)
	}
	for text, want := range map[string]string{"DEBUG": "debug", "Info": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "error", "": "info"} {
		require.Equal(t, want, load(on, "LMCACHE_LOG_LEVEL="+text).LogLevel)
	}
	require.Equal(t, "error", load(on, "LMCACHE_LOG_LEVEL=DEBUG", "RINGCACHE_LOG_LEVEL=error").LogLevel, "ours wins")
	require.Equal(t, "info", load(nil, "LMCACHE_LOG_LEVEL=DEBUG").LogLevel, "this is no server of LMCache")
	require.Equal(t, []string{`log-level (variable LMCACHE_LOG_LEVEL): "loud" is not one of debug, info, warn, error`},
		loadProblems(t, Sources{Flags: on, Environ: []string{"LMCACHE_LOG_LEVEL=loud"}}))

	require.Equal(t, []string{"file", "k"}, keys(load(on, "LMCACHE_API_KEY=k", "LMCACHE_API_KEY_FILE="+file)), "both count, for a change of keys")
	require.Equal(t, []string{"legacy file", "old"}, keys(load(on, "LMCACHE_HTTP_API_KEY=old", "LMCACHE_HTTP_API_KEY_FILE="+legacy)))
	require.Equal(t, []string{"file", "k"}, keys(load(on, "LMCACHE_API_KEY=k", "LMCACHE_API_KEY_FILE="+file,
		"LMCACHE_HTTP_API_KEY=old", "LMCACHE_HTTP_API_KEY_FILE="+legacy)))
	require.Equal(t, []string{"ours"}, keys(load(on, "LMCACHE_API_KEY=k", "LMCACHE_API_KEY_FILE="+file, "RINGCACHE_HTTP_KEY_FILE="+ours)))
	require.Empty(t, keys(load(nil, "LMCACHE_API_KEY=k", "LMCACHE_API_KEY_FILE="+file)))
	require.Contains(t, loadProblems(t, Sources{Flags: on, Environ: []string{"LMCACHE_API_KEY_FILE=/none"}})[0], "http-key-file (variable LMCACHE_API_KEY_FILE): ")

	// LMCache's server does not read these.
	require.Equal(t, 256, load(on, "LMCACHE_CHUNK_SIZE=16").LMCacheChunkSize)
}

// TestKeyIsNeverPrinted: neither as a part of a configuration nor in a log.
func TestKeyIsNeverPrinted(t *testing.T) {
	file := write(t, "hidden in a file")
	c, err := Sources{
		Flags:   map[string]string{"lmcache": "grpc://127.0.0.1:5555", "log-level": "debug"},
		Environ: []string{"LMCACHE_API_KEY=hidden in the environment", "LMCACHE_API_KEY_FILE=" + file},
	}.Load()
	require.NoError(t, err)
	yaml, err := c.YAML()
	require.NoError(t, err)
	keys, err := httpKeys(c)
	require.NoError(t, err)
	require.Len(t, keys, 2)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", keys[0], "keys", keys, "config", c)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", keys[0], "keys", keys, "config", c)
	r := newRunner(RunOptions{Config: c, Reload: func() (Config, error) {
		next := c
		next.httpKey = secretOf("hidden, another one")
		return next, nil
	}})
	_, err = r.tryReload()
	require.ErrorContains(t, err, "the key of HTTP is another one")
	for _, text := range []string{string(yaml), log.String(), fmt.Sprintf("%v %+v %#v %s %q", c, c, c, keys, keys), err.Error()} {
		require.NotContains(t, text, "hidden")
	}
	require.Contains(t, string(yaml), file, "where it is may be known")
}
