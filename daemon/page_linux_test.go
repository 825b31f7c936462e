package daemon

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/page"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
)

// TestPageOfADaemon: it shows what the daemon has and does, by its own counters.
func TestPageOfADaemon(t *testing.T) {
	r := testRunner(t)
	key := tier.Key{Space: "space", Name: "object-1"}
	puts := []tier.Put{{Object: tier.Object{Key: key, Size: 100, Note: []byte("a note")}, Bytes: make([]byte, 100)}}
	r.levels.store.Put(context.Background(), puts)
	require.NoError(t, puts[0].Err)
	_, err := r.levels.store.Drain(context.Background())
	require.NoError(t, err)
	gets := []tier.Get{{Key: key}, {Key: tier.Key{Space: "space", Name: "none"}}}
	r.levels.store.Get(context.Background(), gets)
	r.server.meter.took(wire.Pin, time.Millisecond)
	r.server.meter.items(wire.Reserve, []wire.Item{{Status: wire.StatusFull}, {Status: wire.StatusOK}})
	r.server.meter.items(wire.Commit, []wire.Item{{Status: wire.StatusTooLarge}})
	r.server.meter.refuse(wire.KindBusy)
	n := r.look()
	require.True(t, n.Ready)
	require.Equal(t, []string{"memory", "disk"}, []string{n.Levels[0].Name, n.Levels[1].Name})
	require.Equal(t, []int64{1, 1, 0, 1}, []int64{n.Levels[0].Hits, n.Levels[0].Misses, n.Levels[1].Hits, n.Levels[1].Misses})
	refused := map[string]uint64{}
	for _, x := range n.Refused {
		if x.Count > 0 {
			refused[x.What+" "+x.Reason] = x.Count
		}
	}
	require.Equal(t, map[string]uint64{"requests busy": 1, "objects full": 1, "objects too large": 1}, refused)
	for _, op := range n.Ops {
		require.Equal(t, op.Name == "pin", op.Total > 0)
		require.Len(t, op.Within, len(LatencyBounds)+1)
	}

	ask := func(path string) string {
		w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		q.Host = "localhost"
		r.handler(nil).ServeHTTP(w, q)
		require.Equal(t, 200, w.Code, w.Body.String())
		return w.Body.String()
	}
	body := ask("/page/")
	for _, want := range []string{"segment ringcache-test, 1.0 MiB", "memory <span", "disk <span", "alive, pool of 1.0 MiB, 1 objects", "objects<td>full<td>1"} {
		require.Contains(t, body, want)
	}
	require.Contains(t, ask("/page/objects?q=object"), "space/object-1")
	found := ask("/page/objects?space=space&name=object-1")
	require.Contains(t, found, "memory disk")
	require.Contains(t, found, "a note")
	for _, p := range []int32{phaseOpening, phaseClosed} {
		r.phase.Store(p)
		require.Empty(t, r.look().Levels)
		_, leases := r.find(t.Context(), key)
		require.Empty(t, leases)
	}
	r.phase.Store(phaseDraining)
	require.Equal(t, "draining", r.look().State)
	require.NotEmpty(t, r.look().Levels, "pending writes are what one wants to see then")
}

// TestPageFindsLeases: who has an object is shown with it.
func TestPageFindsLeases(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a", "b")
	p.pin("one", "a", "b")
	p.pin("two", "b")
	r := newRunner(RunOptions{Config: testConfig(t), Log: io.Discard})
	r.levels, r.server = &levels{store: b.store}, b.server
	r.phase.Store(phaseServing)
	found, leases := r.find(t.Context(), tier.Key{Space: space, Name: "a"})
	require.NoError(t, found.Err)
	require.Len(t, leases, 1)
	require.Equal(t, session1+"/one", leases[0].Name)
	_, leases = r.find(t.Context(), tier.Key{Space: space, Name: "b"})
	require.Len(t, leases, 2)
	h := r.server.registry.Holdings(10)
	require.Len(t, h, 1)
	require.Equal(t, []int64{3, 3000}, []int64{h[0].Objects, h[0].Bytes})
	p.release("one", "two")
}

// TestPageOfEnginesWithLMCache: their calls and sessions are there as the others are.
func TestPageOfEnginesWithLMCache(t *testing.T) {
	r := lmcacheRunner(t, nil)
	call := lmcacheClient(t, r)
	storeKV(call)
	call("LookupService/Lookup", &mp.LookupRequest{Key: kvKey(nil)}, &mp.LookupResponse{})
	ops := map[string]bool{}
	for _, op := range r.look().Ops {
		ops[op.Name] = op.Total > 0
	}
	for name, called := range map[string]bool{"lmcache Lookup": true, "lmcache CommitStore": true, "lmcache Clear": false, "pin": false} {
		is, there := ops[name]
		require.True(t, there, name)
		require.Equal(t, called, is, name)
	}
	w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/page/", nil)
	q.Host = "127.0.0.1"
	r.handler(nil).ServeHTTP(w, q)
	require.Contains(t, w.Body.String(), "lmcache Lookup")
	require.Contains(t, w.Body.String(), "<small>lmcache/")
}

// TestKeyOfThePage: a browser sends it as a password, by itself from then on. So nothing but the page takes it so: a
// website could have a browser clear the cache.
func TestKeyOfThePage(t *testing.T) {
	r := testRunner(t)
	r.config.LMCache = []string{"grpc://127.0.0.1:5555"} // for its paths
	h := r.handler([]secret{secretOf("the key")})
	ask := func(method, path, authorization string) *httptest.ResponseRecorder {
		w, q := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		q.Header.Set("Authorization", authorization)
		h.ServeHTTP(w, q)
		return w
	}
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	for _, good := range []string{basic("", "the key"), basic("anyone", "the key"), "Bearer the key"} {
		require.Equal(t, 200, ask(http.MethodGet, "/page/", good).Code)
	}
	for _, bad := range []string{"", basic("the key", ""), basic("x", "another"), "Basic the key", basic("x", "the key") + "x"} {
		for _, path := range []string{"/page/", "/page/objects?q=a", "/page/page.js", page.StreamPath} {
			w := ask(http.MethodGet, path, bad)
			require.Equal(t, http.StatusUnauthorized, w.Code, bad)
			require.Len(t, w.Header().Values("WWW-Authenticate"), 2)
			require.Regexp(t, "^Basic realm=", w.Header().Values("WWW-Authenticate")[1])
		}
	}
	for _, x := range [][2]string{{http.MethodPost, "/cache/clear"}, {http.MethodGet, "/metrics"}, {http.MethodGet, "/status"}, {http.MethodPut, "/quota/a"}, {http.MethodPost, "/page/../cache/clear"}} {
		w := ask(x[0], x[1], basic("x", "the key"))
		require.NotEqual(t, 200, w.Code, x)
		require.NotContains(t, strings.Join(w.Header().Values("WWW-Authenticate"), ""), "Basic", "a browser is not asked for it")
	}
	require.Equal(t, 200, ask(http.MethodGet, "/metrics", "Bearer the key").Code)
}

// TestBrowsersAreLedToThePage, and nobody else is.
func TestBrowsersAreLedToThePage(t *testing.T) {
	r := testRunner(t)
	ask := func(accept string) *httptest.ResponseRecorder {
		w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		q.Header.Set("Accept", accept)
		r.handler(nil).ServeHTTP(w, q)
		return w
	}
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	w := ask(browser)
	require.Equal(t, http.StatusFound, w.Code)
	require.Equal(t, "page/", w.Header().Get("Location"))
	require.Equal(t, http.StatusNotFound, ask("*/*").Code)
	r.config.LMCache = []string{"grpc://127.0.0.1:5555"}
	require.Equal(t, http.StatusFound, ask(browser).Code)
	require.Contains(t, ask("*/*").Body.String(), `"service":"ringcache"`)
}

// TestStreamOfADaemon: it has what the log has, there is a most of them, and it ends with the daemon at once.
func TestStreamOfADaemon(t *testing.T) {
	r := testRunner(t)
	w, err := r.openHTTP(context.Background())
	require.NoError(t, err)
	resp, err := http.Get("http://" + w.addr + page.StreamPath)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	in := bufio.NewReader(resp.Body)
	until := func(text string) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			require.NoError(t, err)
			if strings.Contains(line, text) {
				return
			}
		}
	}
	until("event: levels")
	r.log.Warn("something happened")
	until("something happened")
	others := make([]io.Closer, 0, maxHTTP)
	for range r.config.files().http/4 - 1 {
		o, err := http.Get("http://" + w.addr + page.StreamPath) //nolint:bodyclose // below
		require.NoError(t, err)
		require.Equal(t, 200, o.StatusCode)
		others = append(others, o.Body)
	}
	o, err := http.Get("http://" + w.addr + page.StreamPath)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, o.StatusCode)
	require.NoError(t, o.Body.Close())
	begin := time.Now()
	require.NoError(t, w.close())
	require.Less(t, time.Since(begin), time.Minute)
	_, _ = io.Copy(io.Discard, in) // it ends, with an error or not
	for _, c := range others {
		require.NoError(t, c.Close())
	}
}
