package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// lmcacheConfig is a configuration with a socket for LMCache.
func lmcacheConfig(t testing.TB) (c Config, socket string) {
	t.Helper()
	c = testConfig(t)
	socket = filepath.Join(filepath.Dir(c.Socket), "lm")
	c.LMCache = []string{"grpc+unix://" + socket}
	return c, socket
}

// lmcacheRunner is a runner that serves LMCache's clients, without HTTP.
func lmcacheRunner(t testing.TB, change func(*Config)) *runner {
	t.Helper()
	c, _ := lmcacheConfig(t)
	if change != nil {
		change(&c)
	}
	r := newRunner(RunOptions{Config: c, Version: "ringcache test", Log: io.Discard})
	var err error
	r.levels, err = c.open(t.Context(), r.log, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.levels.close()) })
	r.socket, err = openSocket(t.Context(), c.Socket, r.log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.socket.close()) })
	o := r.serverOptions()
	r.registry, err = openRegistry(o)
	require.NoError(t, err)
	t.Cleanup(r.registry.Close)
	r.rooms = newRooms()
	o.registry, o.rooms = r.registry, r.rooms
	r.server, err = NewServer(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.server.Shutdown(context.Background())) })
	r.lmcache, err = r.openLMCache(t.Context(), "")
	require.NoError(t, err)
	var tasks sync.WaitGroup
	failed := make(chan error, len(c.LMCache))
	r.lmcache.serve(t.Context(), &tasks, failed)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		r.lmcache.shutdown(ended)
		tasks.Wait()
		require.Empty(t, failed)
		require.NoError(t, r.lmcache.close())
	})
	r.phase.Store(phaseServing)
	return r
}

// lmcacheClient calls as a client of LMCache.
func lmcacheClient(t testing.TB, r *runner) func(method string, q, p proto.Message) {
	t.Helper()
	_, socket, _ := strings.Cut(r.config.LMCache[0], "//")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	ctx := metadata.AppendToOutgoingContext(t.Context(), "lmcache-client-id-bin", "0123456789abcdef")
	return func(method string, q, p proto.Message) {
		t.Helper()
		require.NoError(t, conn.Invoke(ctx, "/lmcache.mp."+method, q, p, grpc.WaitForReady(true)))
	}
}

// TestReadinessOfLMCache: a socket that clients can't find any more is a reason.
func TestReadinessOfLMCache(t *testing.T) {
	r := lmcacheRunner(t, nil)
	code, body := get(r, "GET", "/readyz")
	require.Equal(t, 200, code, body)
	_, socket, _ := strings.Cut(r.config.LMCache[0], "//")
	require.NoError(t, os.Remove(socket))
	code, body = get(r, "GET", "/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "lmcache: the socket "+socket+" was removed")
	code, _ = get(r, "GET", "/healthz")
	require.Equal(t, 200, code)
}

// TestDaemonEndsWithAListenerOfLMCache: it does not go on without it.
func TestDaemonEndsWithAListenerOfLMCache(t *testing.T) {
	c, _ := lmcacheConfig(t)
	r := newRunner(RunOptions{Config: c, Log: io.Discard})
	ended := make(chan error, 1)
	go func() { ended <- r.run(t.Context()) }()
	for r.phase.Load() != phaseServing {
		select {
		case err := <-ended:
			t.Fatal("it did not start", err)
		default:
		}
	}
	require.NoError(t, r.lmcache.listeners[0].Close())
	require.ErrorContains(t, <-ended, "the listener at "+r.lmcache.listeners[0].Addr().String())
}

// TestServeCheckOfLMCache: its addresses are looked at, and what it keeps beside the segment.
func TestServeCheckOfLMCache(t *testing.T) {
	served := lmcacheRunner(t, nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	for name, v := range map[string]struct {
		address, state string
		level          slog.Level
		text           string
	}{
		"socket":                   {"", "", slog.LevelInfo, "/lm is free"},
		"socket of another daemon": {served.config.LMCache[0], "", slog.LevelError, "has the socket"},
		"port":                     {"grpc://" + free.Addr().String(), "", slog.LevelInfo, " is free"},
		"port of another program":  {"grpc://" + taken.Addr().String(), "", slog.LevelError, "give another address"},
		"no file":                  {"", "", slog.LevelInfo, ".lmcache is made"},
		"file":                     {"", `{"instances":{"1":{}}}`, slog.LevelInfo, "has 1 workers"},
		"damaged file":             {"", "x", slog.LevelWarn, "engines have to register again, and quotas set by HTTP are lost"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := lmcacheConfig(t)
			if v.address != "" {
				c.LMCache = []string{v.address}
			}
			if v.state != "" {
				require.NoError(t, os.WriteFile(lmcacheFile(c), []byte(v.state), 0o600))
			}
			before := everything(t, c.ShmDir, filepath.Dir(c.Socket))
			found := about(c.Check(t.Context()), "lmcache")
			require.Equal(t, before, everything(t, c.ShmDir, filepath.Dir(c.Socket)))
			require.Len(t, found, 2)
			var texts []string
			for _, f := range found {
				if f.Level == v.level {
					texts = append(texts, f.Text)
				}
			}
			require.Contains(t, strings.Join(texts, "\n"), v.text)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := newRunner(RunOptions{Config: c, Log: cancelAt{"msg=serving", cancel}}).run(ctx)
			require.Equal(t, v.level == slog.LevelError, err != nil, "as check says: %v", err)
		})
	}
}

// TestAddressesOfLMCacheOnce: a second listener at the same place would fail, as if another daemon had it.
func TestAddressesOfLMCacheOnce(t *testing.T) {
	c, socket := lmcacheConfig(t)
	c.LMCache = append(c.LMCache, "grpc+unix://"+socket)
	require.ErrorContains(t, c.Validate(), "is given twice")
	c.LMCache = []string{"grpc+unix://" + c.Socket}
	require.ErrorContains(t, c.Validate(), "or is the socket")
}

// storeKV registers a worker, which stores two chunks.
func storeKV(call func(method string, q, p proto.Message)) {
	call("ManagementService/NegotiateChunkSize", &mp.NegotiateChunkSizeRequest{RequiredChunkAlignment: 16}, &mp.NegotiateChunkSizeResponse{})
	call("EngineDrivenService/RegisterKvCacheEngineDrivenContext", &mp.RegisterKvCacheEngineDrivenContextRequest{
		InstanceId: 1, ModelName: "m", WorldSize: 1, BlockSize: 16, NumLayers: 1, HiddenDimSize: 8, DtypeStr: "float32",
	}, &mp.RegisterKvCacheEngineDrivenContextResponse{})
	call("EngineDrivenService/PrepareStore", &mp.PrepareStoreRequest{Key: kvKey(new(int64)), InstanceId: 1}, &mp.PrepareStoreResponse{})
	call("EngineDrivenService/CommitStore", &mp.CommitStoreRequest{Key: kvKey(new(int64)), InstanceId: 1}, &mp.CommitStoreResponse{})
}

// kvKey is a key of two chunks and a part of one.
func kvKey(worker *int64) *mp.IpcCacheServerKey {
	return &mp.IpcCacheServerKey{ModelName: "m", WorldSize: 1, WorkerId: worker, RequestId: "r", NumKvReaders: 1, End: 512, Tokens: make([]byte, 4*520)}
}

// TestMetricsOfLMCache: names and types are those of LMCache's own server, and the values follow what happens.
func TestMetricsOfLMCache(t *testing.T) {
	r := lmcacheRunner(t, nil)
	call := lmcacheClient(t, r)
	storeKV(call)
	call("LookupService/Lookup", &mp.LookupRequest{Key: kvKey(nil)}, &mp.LookupResponse{})
	load := &mp.PrepareRetrieveResponse{}
	call("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: kvKey(new(int64)), InstanceId: 1}, load)
	require.True(t, load.Success)
	_, err := r.levels.store.Drain(t.Context())
	require.NoError(t, err)

	found, err := testutil.GatherAndLint(r.metrics())
	require.NoError(t, err)
	require.Empty(t, found)
	_, body := get(r, "GET", "/metrics")
	used := r.levels.store.State().Levels[0].Usage.Bytes
	require.Positive(t, used)
	for _, line := range []string{
		"lookups_requests_total 1", "lookup_requested_tokens_total 512", "lookup_hit_tokens_total 512", "lookup_hit_l1_tokens_total 512",
		"lookup_hit_l2_tokens_total 0", "lookup_prompt_tokens_total 520", "lookup_request_hit_tokens_total 512", "active_prefetch_jobs 0",
		`lookup_early_exit_requests_total{reason="no_gpu_context"} 0`, "num_chunks_loaded_total 2", "l1_read_chunks_total 2", "l1_write_chunks_total 2",
		"l1_evicted_chunks_total 0", "l1_memory_usage_bytes ", "l1_usage_ratio 0.", `l1_allocation_failure_chunks_total{during="l1_store"} 0`,
		`l1_read_failure_chunks_total{during="l1_retrieve",reason="not_found"} 0`, "l2_store_completed_objects_chunks_total 2",
		"l2_prefetch_load_completed_chunks_total 0", `l2_prefetch_failure_chunks_total{reason="l1_oom"} 0`, "l2_evicted_objects_chunks_total 0", "kv_events_log_depth 0",
		`l2_usage_bytes{l2_name="disk"} `,
	} {
		require.Contains(t, body, "\nlmcache_mp_"+line)
	}
	require.Contains(t, body, "\nringcache_ready 1")

	// The names of lmcache_metrics.txt are those that LMCache's server has, with their types.
	b, err := os.ReadFile(filepath.Join("testdata", "lmcache_metrics.txt"))
	require.NoError(t, err)
	for _, typed := range regexp.MustCompile(`(?m)^# TYPE (lmcache_mp_\w+) (\w+)$`).FindAllStringSubmatch(body, -1) {
		require.Contains(t, "\n"+string(b), "\n"+typed[1]+" "+typed[2]+"\n")
	}
	require.Len(t, regexp.MustCompile(`(?m)^# TYPE lmcache_mp_`).FindAllString(body, -1), len(lmcacheMetrics))

	// Without LMCache there are none.
	_, body = get(testRunner(t), "GET", "/metrics")
	require.NotContains(t, body, "lmcache_mp_")
}

// TestOperationsHaveAllMetricsOfLMCache: the table in docs/operations.md has each metric of LMCache's server once, as one
// that the daemon has or has not.
func TestOperationsHaveAllMetricsOfLMCache(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "operations.md"))
	require.NoError(t, err)
	names, err := os.ReadFile(filepath.Join("testdata", "lmcache_metrics.txt"))
	require.NoError(t, err)
	ours := map[string]bool{}
	for _, m := range lmcacheMetrics {
		d := m.desc.String()
		name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d)[1]
		help := regexp.MustCompile(`help: "([^"]+)"`).FindStringSubmatch(d)[1]
		ours[name] = true
		require.Regexp(t, "(?m)^\\| `"+name+"` \\| .*\\| "+regexp.QuoteMeta(help), string(text))
	}
	for line := range strings.Lines(string(names)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ := strings.Cut(line, " ")
		if !ours[name] {
			require.Equal(t, 1, strings.Count(string(text), "`"+name+"`"), "%s is left out, and the page does not say why", name)
		}
		delete(ours, name)
	}
	require.Empty(t, ours, "LMCache has no such metric")
}
