package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	export "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/wire"
)

// spans is a collector of OpenTelemetry.
type spans struct {
	*httptest.Server
	mu  sync.Mutex
	all []*otlp.Span
}

func collectSpans(t testing.TB) *spans {
	t.Helper()
	s := &spans{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var m export.ExportTraceServiceRequest
		if err != nil || q.URL.Path != "/v1/traces" || proto.Unmarshal(body, &m) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range m.ResourceSpans {
			for _, scope := range r.ScopeSpans {
				s.all = append(s.all, scope.Spans...)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// of returns the spans of a trace, by name.
func (s *spans) of(trace int) map[string]*otlp.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*otlp.Span{}
	for _, x := range s.all {
		if fmt.Sprintf("%x", x.TraceId) == traceID(trace) {
			out[x.Name] = x
		}
	}
	return out
}

func traceID(n int) string { return fmt.Sprintf("%032x", n) }

func traceparent(n int) string { return "00-" + traceID(n) + "-00f067aa0ba902b7-01" }

// TestTraces: requests of our protocol, of LMCache's and of HTTP are spans of their callers' traces, and so are the
// calls of the disk that they bring about.
func TestTraces(t *testing.T) {
	s := collectSpans(t)
	c, socket := lmcacheConfig(t)
	c.OTLP = s.URL + "/"
	r := newRunner(RunOptions{Config: c, Version: "test", Log: io.Discard})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ended) }()
	waitFor := func(what string, is func() bool) {
		t.Helper()
		for begin := time.Now(); !is(); time.Sleep(time.Millisecond) {
			if time.Since(begin) > 2*time.Minute || len(ended) > 0 {
				t.Fatalf("%s: it did not come to that", what)
			}
		}
	}
	waitFor("serving", func() bool { return r.phase.Load() == phaseServing })
	cl, err := client.Dial(t.Context(), client.Options{Socket: c.Socket, Name: "test"})
	require.NoError(t, err)
	defer func() { require.NoError(t, cl.Close()) }()
	store := func(name string, trace string) {
		t.Helper()
		_, err := cl.Reserve(
			t.Context(),
			wire.Request{Lease: "l", Space: "s", Objects: []wire.Object{{Name: name, Size: 100 << 10}}, Trace: trace},
		)
		require.NoError(t, err)
		_, err = cl.Commit(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{name}, Trace: trace})
		require.NoError(t, err)
		require.NoError(t, cl.Release(t.Context(), wire.Request{Leases: []string{"l"}}))
	}
	store("a", traceparent(1))
	fill := func(name string) { // until memory has nothing of what was there
		t.Helper()
		for i := range 30 {
			waitFor("written", func() bool { return r.levels.store.State().Backlog == 0 })
			store(fmt.Sprint(name, " ", i), "")
		}
	}
	fill("other")
	waitFor("a hit", func() bool {
		items, err := cl.Pin(t.Context(), wire.Request{Lease: "l", Space: "s", Names: []string{"a"}, Trace: traceparent(2)})
		require.NoError(t, err)
		return items[0].Status == wire.StatusHit
	})

	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	engine := func(trace int) func(method string, q, p proto.Message) { // LMCache's client in it
		ctx := metadata.AppendToOutgoingContext(
			t.Context(),
			"lmcache-client-id-bin",
			"0123456789abcdef",
			"traceparent",
			traceparent(trace),
		)
		return func(method string, q, p proto.Message) {
			t.Helper()
			require.NoError(t, conn.Invoke(ctx, "/lmcache.mp."+method, q, p))
		}
	}
	engine(3)("DebugService/Noop", &mp.NoopRequest{}, &mp.NoopResponse{})
	storeKV(engine(5))
	fill("another")
	engine(6)("LookupService/Lookup", &mp.LookupRequest{Key: kvKey(nil)}, &mp.LookupResponse{})
	waitFor("the chunks", func() bool {
		p := &mp.QueryPrefetchStatusResponse{}
		engine(7)("LookupService/QueryPrefetchStatus", &mp.QueryPrefetchStatusRequest{RequestId: "r"}, p)
		require.Contains(t, []int64{0, 2}, p.GetChunkCount())
		return p.GetChunkCount() == 2
	})
	load := &mp.PrepareRetrieveResponse{}
	call := engine(8)
	call("EngineDrivenService/PrepareRetrieve", &mp.PrepareRetrieveRequest{Key: kvKey(new(int64)), InstanceId: 1}, load)
	require.True(t, load.Success)
	engine(9)("LookupService/EndSession", &mp.EndSessionRequest{RequestId: "r"}, &mp.EndSessionResponse{})

	q := httptest.NewRequest(http.MethodGet, "/healthz", nil)
	q.Header.Set("traceparent", traceparent(4))
	w := httptest.NewRecorder()
	r.handler(nil).ServeHTTP(w, q)
	require.Equal(t, 200, w.Code)
	stop()
	require.NoError(t, <-ended)
	ended <- nil

	stored := s.of(1)
	for name, parent := range map[string]string{"ringcache reserve": "", "ringcache commit": "", "write back disk": "ringcache commit"} {
		require.Contains(t, stored, name)
		if parent == "" {
			require.Equal(t, "00f067aa0ba902b7", fmt.Sprintf("%x", stored[name].ParentSpanId), name)
		} else {
			require.Equal(t, stored[parent].SpanId, stored[name].ParentSpanId, name)
		}
	}
	loaded := s.of(2)
	for _, name := range []string{"ringcache pin", "look up disk", "fetch disk"} {
		require.Contains(t, loaded, name)
	}
	require.Contains(t, s.of(3), "lmcache Noop")
	for trace, spans := range map[int][2]string{5: {"lmcache CommitStore", "write back disk"}, 6: {"lmcache Lookup", "look up disk"}} {
		of := s.of(trace)
		require.Contains(t, of, spans[0])
		require.Equal(t, "00f067aa0ba902b7", fmt.Sprintf("%x", of[spans[0]].ParentSpanId))
		require.Contains(t, of, spans[1])
		require.Equal(t, of[spans[0]].SpanId, of[spans[1]].ParentSpanId)
	}
	require.Contains(t, s.of(6), "fetch disk", "the look-up is what wanted the chunks, whoever asks for its answer")
	require.Equal(t, s.of(6)["lmcache Lookup"].SpanId, s.of(6)["fetch disk"].ParentSpanId)
	require.NotContains(t, s.of(7), "fetch disk")
	require.Contains(t, s.of(8), "lmcache PrepareRetrieve")
	require.Contains(t, s.of(4), "HTTP GET")
}

func TestOTLPThatCannotBeRight(t *testing.T) {
	for text, ok := range map[string]bool{
		"http://127.0.0.1:4318": true, "https://collector": true, "http://collector:4318/": true,
		"127.0.0.1:4318": false, "grpc://x:4317": false, "http://": false, "http://user:secret@x": false, "http://x/v1/traces": false, "http://x?y": false,
	} {
		c := testConfig(t)
		c.OTLP = text
		if err := c.Validate(); ok {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, "otlp: it must be", text)
			require.NotContains(t, err.Error(), "secret")
		}
	}
	c := testConfig(t)
	c.OTLPOneIn = 0
	require.ErrorContains(t, c.Validate(), "otlp-one-in")
}

// TestProfiles: on loopback, with the keys of HTTP, and nowhere else.
func TestProfiles(t *testing.T) {
	for text, why := range map[string]string{
		"0.0.0.0:6060": "reached from other machines", ":6060": "reached from other machines", "192.0.2.1:6060": "reached from other machines",
		"6060": "is not HOST:PORT", "127.0.0.1:x": "is not HOST:PORT",
	} {
		c := testConfig(t)
		c.PProf = text
		require.ErrorContains(t, c.Validate(), why, text)
	}
	c := testConfig(t)
	c.HTTP, c.PProf = "127.0.0.1:9401", "127.0.0.1:9401"
	require.ErrorContains(t, c.Validate(), "is the address of http")

	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("a key\n"), 0o600))
	c = testConfig(t)
	c.PProf, c.HTTPKeyFile = "127.0.0.1:0", []string{key}
	require.NoError(t, c.Validate())
	r := newRunner(RunOptions{Config: c, Log: io.Discard})
	p, err := r.openPProf(t.Context())
	require.NoError(t, err)
	ask := func(path, key string) (int, string) {
		t.Helper()
		q, err := http.NewRequest(http.MethodGet, "http://"+p.addr+path, nil)
		require.NoError(t, err)
		q.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(q)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode, string(body)
	}
	status, _ := ask("/debug/pprof/heap", "another")
	require.Equal(t, 401, status)
	status, body := ask("/debug/pprof/goroutine?debug=1", "a key")
	require.Equal(t, 200, status)
	require.Contains(t, body, "TestProfiles")
	status, body = ask("/debug/pprof/", "a key")
	require.Equal(t, 200, status)
	require.Contains(t, body, "goroutine")
	status, _ = ask("/metrics", "a key")
	require.Equal(t, 404, status)
	require.NoError(t, p.close())
	_, err = net.Dial("tcp", p.addr)
	require.Error(t, err)

	none, err := newRunner(RunOptions{Config: testConfig(t), Log: io.Discard}).openPProf(t.Context())
	require.NoError(t, err)
	require.NoError(t, none.close())
	status, _ = get(testRunner(t), "GET", "/debug/pprof/")
	require.Equal(t, 404, status, "the other address has none")
}
