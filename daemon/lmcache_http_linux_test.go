package daemon

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
)

// askJSON asks the handler of a runner, with a body.
func askJSON(t testing.TB, r *runner, method, path, body string) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	r.handler(nil).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"), w.Body.String())
	var v map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
	return w.Code, v
}

// TestPathsOfLMCache: probes and tools of LMCache's own server find theirs, and nobody without the protocol.
func TestPathsOfLMCache(t *testing.T) {
	r := lmcacheRunner(t, nil)
	storeKV(lmcacheClient(t, r))
	code, v := askJSON(t, r, "GET", "/", "")
	require.Equal(t, 200, code)
	require.Equal(t, map[string]any{"status": "ok", "service": "ringcache"}, v)
	code, v = askJSON(t, r, "GET", "/healthcheck", "")
	require.Equal(t, 200, code)
	require.Equal(t, map[string]any{"status": "healthy"}, v)

	lmcacheClient(t, r)("LookupService/Lookup", &mp.LookupRequest{Key: kvKey(nil)}, &mp.LookupResponse{})
	code, v = askJSON(t, r, "GET", "/status", "")
	require.Equal(t, 200, code)
	for name, want := range map[string]any{
		"is_healthy": true, "chunk_size": 256.0, "hash_algorithm": "blake3", "active_sessions": 1.0, "active_prefetch_jobs": 0.0,
		"registered_non_cuda_instance_ids": []any{1.0}, "kv_events": map[string]any{"enabled": true, "log_depth": 0.0},
		"non_cuda_context_meta": map[string]any{"1": map[string]any{"model_name": "m", "world_size": 1.0, "block_size": 16.0, "use_mla": false}},
	} {
		require.Equal(t, want, v[name], name)
	}
	storage := v["storage_manager"].(map[string]any)
	memory := storage["l1_manager"].(map[string]any)
	require.Equal(t, 2.0, memory["total_object_count"])
	require.Equal(t, float64(r.levels.store.State().Levels[0].Usage.Bytes), memory["memory_used_bytes"])
	require.Equal(t, 300.0, memory["read_ttl_seconds"])
	require.Equal(t, 900.0, memory["write_ttl_seconds"], "what is reserved stays for ten minutes more")
	require.Equal(t, 1.0, storage["num_l2_adapters"])
	require.Equal(t, "disk", storage["l2_adapters"].([]any)[0].(map[string]any)["type"])

	for p, text := range map[int32]string{phaseOpening: "opening the levels", phaseDraining: "draining", phaseClosed: "closed"} {
		r.phase.Store(p)
		code, v = askJSON(t, r, "GET", "/healthcheck", "")
		require.Equal(t, 503, code)
		require.Contains(t, v["reason"], text)
		code, v = askJSON(t, r, "GET", "/status", "")
		require.Equal(t, 503, code)
		require.Contains(t, v["error"], text)
		code, _ = askJSON(t, r, "POST", "/cache/clear", "")
		require.Equal(t, 503, code)
	}
	r.phase.Store(phaseServing)
	for _, path := range []string{"/cache/objects", "/version", "/config"} {
		code, _ := get(r, "GET", path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
	for _, path := range []string{"/", "/healthcheck", "/status", "/cache/clear", "/quota", "/quota/a"} {
		code, _ := get(testRunner(t), "GET", path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
}

// objects lists the names of the objects of a store, of spaces that begin with a text.
func objectsIn(t testing.TB, r *runner, prefix string) (n int) {
	t.Helper()
	for o, err := range r.levels.store.List(t.Context(), "") {
		require.NoError(t, err)
		if strings.HasPrefix(o.Space, prefix) {
			n++
		}
	}
	return n
}

// TestClearByHTTP: all KV goes, and nothing else; what an engine has locked stays; nothing is deleted that was not
// asked for.
func TestClearByHTTP(t *testing.T) {
	for name, v := range map[string]struct {
		disk, body string
		code       int
		tier       string // of the answer
	}{
		"memory only":            {"", "", 200, "l1"},
		"memory only, and so":    {"", `{"tier": "l1", "force": false}`, 200, "l1"},
		"all of memory":          {"", `{"tier": "all"}`, 200, "all"},
		"all levels":             {"yes", `{"tier": "all"}`, 200, "all"},
		"a disk that may not go": {"yes", "", 400, ""},
		"memory above a disk":    {"yes", `{"tier": "l1"}`, 400, ""},
		"a lower level":          {"yes", `{"tier": "l2"}`, 400, ""},
		"by force":               {"", `{"force": true}`, 400, ""},
		"nonsense":               {"", `{`, 422, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := lmcacheRunner(t, func(c *Config) {
				if v.disk == "" {
					c.Disk = ""
				}
			})
			call := lmcacheClient(t, r)
			storeKV(call)
			puts := []tier.Put{{Object: tier.Object{Key: tier.Key{Space: "other", Name: "n"}, Size: 100}, Bytes: make([]byte, 100)}}
			r.levels.store.Put(t.Context(), puts)
			require.NoError(t, puts[0].Err)
			call("LookupService/Lookup", &mp.LookupRequest{Key: kvKey(nil)}, &mp.LookupResponse{})
			if v.code == 200 {
				code, _ := askJSON(t, r, "POST", "/cache/clear", v.body)
				require.Equal(t, 200, code)
				require.Equal(t, 2, objectsIn(t, r, kv.SpacePrefix), "an engine has locked them")
			}
			call("LookupService/EndSession", &mp.EndSessionRequest{RequestId: "r"}, &mp.EndSessionResponse{})
			code, answer := askJSON(t, r, "POST", "/cache/clear", v.body)
			require.Equal(t, v.code, code, answer)
			if v.code != 200 {
				require.NotEmpty(t, answer["detail"])
				require.Equal(t, 2, objectsIn(t, r, kv.SpacePrefix))
				return
			}
			require.Equal(t, map[string]any{"status": "ok", "cleared": map[string]any{"tier": v.tier}}, answer)
			require.Zero(t, objectsIn(t, r, kv.SpacePrefix))
			require.Equal(t, 1, objectsIn(t, r, "other"))
		})
	}
}

// TestAnswerWhileTheDaemonGetsReady: the phase may be the next one between two looks at it.
func TestAnswerWhileTheDaemonGetsReady(t *testing.T) {
	r := lmcacheRunner(t, nil)
	h := r.handler(nil)
	stop := make(chan struct{})
	var toggling sync.WaitGroup
	toggling.Go(func() {
		for {
			select {
			case <-stop:
				r.phase.Store(phaseServing)
				return
			default:
				r.phase.Store(phaseOpening)
				r.phase.Store(phaseServing)
			}
		}
	})
	defer toggling.Wait()
	defer close(stop)
	for range 2000 {
		for _, path := range []string{"/quota", "/status"} {
			w := httptest.NewRecorder()
			require.NotPanics(t, func() { h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil)) })
			require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, w.Code)
		}
		w := httptest.NewRecorder()
		require.NotPanics(t, func() {
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/cache/clear", strings.NewReader(`{"force": true}`)))
		})
	}
}
