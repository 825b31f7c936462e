package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// testConfig is a configuration of a small daemon in folders of the test.
func testConfig(t testing.TB) Config {
	t.Helper()
	c, err := Sources{Flags: map[string]string{
		"name": "ringcache-test", "size": "1MiB", "shm-dir": t.TempDir(), "socket": socketPath(t), "http": "127.0.0.1:0", "disk": t.TempDir(), "drain": "1m",
	}}.Load()
	require.NoError(t, err)
	return c
}

// testRunner is a runner that serves, without a listener.
func testRunner(t testing.TB) *runner {
	t.Helper()
	r := newRunner(RunOptions{Config: testConfig(t), Version: "ringcache test", Log: io.Discard})
	var err error
	r.levels, err = r.config.open(context.Background(), r.log, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.levels.close()) })
	r.server, err = NewServer(ServerOptions{Store: r.levels.store, Memory: r.levels.memory, ShmDir: r.config.ShmDir})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.server.Shutdown(context.Background())) })
	r.socket, err = openSocket(context.Background(), r.config.Socket, r.log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.socket.close()) })
	r.phase.Store(phaseServing)
	return r
}

// get asks the handler of a runner.
func get(r *runner, method, path string) (int, string) {
	w := httptest.NewRecorder()
	r.handler(nil).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

func TestHealthAndReadiness(t *testing.T) {
	r := testRunner(t)
	want := func(code int, path, text string) {
		t.Helper()
		got, body := get(r, "GET", path)
		require.Equal(t, code, got, body)
		require.Contains(t, body, text)
	}
	want(200, "/healthz", "alive")
	want(200, "/readyz", "ready")
	for p, text := range map[int32]string{phaseOpening: "opening the levels", phaseDraining: "draining", phaseClosed: "closed"} {
		r.phase.Store(p)
		want(200, "/healthz", "alive")
		want(503, "/readyz", text)
	}
	r.phase.Store(phaseServing)
	require.NoError(t, os.Remove(r.config.Socket))
	want(503, "/readyz", "the socket "+r.config.Socket+" was removed")
	want(200, "/healthz", "alive")
}

// TestNothingElseIsServed: no profiles, no other methods, no paths that look alike.
func TestNothingElseIsServed(t *testing.T) {
	r := testRunner(t)
	for _, path := range []string{"/", "/debug/pprof/", "/debug/vars", "/healthz/", "/metrics/x", "/config"} {
		code, _ := get(r, "GET", path)
		require.Equal(t, http.StatusNotFound, code, path)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			code, _ := get(r, method, path)
			require.Equal(t, http.StatusMethodNotAllowed, code, "%s %s", method, path)
		}
		code, _ := get(r, "HEAD", path)
		require.Equal(t, 200, code, path)
	}
}

// TestMetrics: names by convention, all of those that the table has, and values that follow what happens.
func TestMetrics(t *testing.T) {
	r := testRunner(t)
	key := tier.Key{Space: "s", Name: "n"}
	puts := []tier.Put{{Object: tier.Object{Key: key, Size: 100}, Bytes: make([]byte, 100)}}
	r.levels.store.Put(context.Background(), puts)
	require.NoError(t, puts[0].Err)
	gets := []tier.Get{{Key: key}, {Key: tier.Key{Space: "s", Name: "none"}}}
	r.levels.store.Get(context.Background(), gets)
	_, err := r.levels.store.Drain(context.Background())
	require.NoError(t, err)

	found, err := testutil.GatherAndLint(r.metrics())
	require.NoError(t, err)
	require.Empty(t, found)
	code, body := get(r, "GET", "/metrics")
	require.Equal(t, 200, code, body)
	for _, line := range []string{
		`ringcache_ready 1`, `ringcache_level_up{level="memory"} 1`, `ringcache_level_up{level="disk"} 1`, `ringcache_level_objects{level="memory"} 1`,
		`ringcache_level_objects{level="disk"} 1`, `ringcache_level_capacity_bytes{level="memory"} `, `ringcache_tier_objects_total{cause="",kind="hit",level="memory"} 1`,
		`ringcache_tier_bytes_total{cause="",kind="hit",level="memory"} 100`, `ringcache_tier_objects_total{cause="",kind="written",level="disk"} 1`,
		`ringcache_backlog_objects 0`, `ringcache_build_info{go="go1.`, `ringcache_sessions 0`, `process_open_fds `, `go_goroutines `,
	} {
		require.Contains(t, body, "\n"+line)
	}
	require.NotContains(t, body, `ringcache_level_capacity_bytes{level="disk"}`, "it has no limit of its own")

	// A metric that is not there before something happens has a description all the same.
	all := make(chan string, 100)
	for _, m := range allMetrics {
		all <- m.desc.String()
	}
	close(all)
	seen := map[string]bool{}
	for d := range all {
		require.False(t, seen[d], d)
		seen[d] = true
		require.Regexp(t, `fqName: "ringcache_[a-z_]+", help: "[A-Z].*\."`, d)
	}

	for _, p := range []int32{phaseOpening, phaseClosed} {
		r.phase.Store(p)
		code, body = get(r, "GET", "/metrics")
		require.Equal(t, 200, code)
		require.Contains(t, body, "\nringcache_ready 0")
		require.NotContains(t, body, "ringcache_level_up")
	}
}

// TestMetricsOfTheServer: each counter has its place, and texts of labels can't break the page.
func TestMetricsOfTheServer(t *testing.T) {
	s := Counters{
		Connections: 1, Sessions: 2, Processes: 3, Leases: 4, Waiting: 5, Held: 6, Messages: 13, Accepted: 7, Recovered: 8, EndedByTime: 9, EndedByExit: 10,
		Items:    []ItemCounter{{"pin", "too large", 11}},
		Refused:  []RefusedCounter{{"hello", 12}},
		Requests: []RequestCounter{{Op: "pin", Count: 6, Total: 3 * time.Second}},
	}
	s.Requests[0].Within[0], s.Requests[0].Within[1], s.Requests[0].Within[len(LatencyBounds)] = 1, 2, 3
	g := collectorOf(s)
	require.NoError(t, testutil.CollectAndCompare(g, strings.NewReader(`
# HELP ringcache_connections Connections of clients.
# TYPE ringcache_connections gauge
ringcache_connections 1
# HELP ringcache_sessions Sessions of clients.
# TYPE ringcache_sessions gauge
ringcache_sessions 2
# HELP ringcache_client_processes Processes of clients.
# TYPE ringcache_client_processes gauge
ringcache_client_processes 3
# HELP ringcache_leases Open leases.
# TYPE ringcache_leases gauge
ringcache_leases 4
# HELP ringcache_leases_waiting Leases from before the start whose client has not come back.
# TYPE ringcache_leases_waiting gauge
ringcache_leases_waiting 5
# HELP ringcache_leased_bytes Bytes that leases have pinned or reserved, each lease for itself.
# TYPE ringcache_leased_bytes gauge
ringcache_leased_bytes 6
# HELP ringcache_message_bytes Bytes that large requests, large replies and lookups of stat take: at most 48 MiB, and 2 GiB more for LMCache's messages.
# TYPE ringcache_message_bytes gauge
ringcache_message_bytes 13
# HELP ringcache_connections_accepted_total Connections that were accepted.
# TYPE ringcache_connections_accepted_total counter
ringcache_connections_accepted_total 7
# HELP ringcache_leases_recovered_total Leases that were taken over at the start.
# TYPE ringcache_leases_recovered_total counter
ringcache_leases_recovered_total 8
# HELP ringcache_leases_expired_total Leases that ended without their client's word: by time, or with its process.
# TYPE ringcache_leases_expired_total counter
ringcache_leases_expired_total{cause="exit"} 10
ringcache_leases_expired_total{cause="time"} 9
# HELP ringcache_items_total Answers about single objects.
# TYPE ringcache_items_total counter
ringcache_items_total{op="pin",status="too_large"} 11
# HELP ringcache_requests_refused_total Requests that were refused as a whole.
# TYPE ringcache_requests_refused_total counter
ringcache_requests_refused_total{kind="hello"} 12
# HELP ringcache_request_duration_seconds Time from the arrival of a request to its answer.
# TYPE ringcache_request_duration_seconds histogram
ringcache_request_duration_seconds_bucket{op="pin",le="1e-05"} 1
ringcache_request_duration_seconds_bucket{op="pin",le="2.5e-05"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="5e-05"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.0001"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.00025"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.0005"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.001"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.0025"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.005"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.01"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.025"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.05"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="0.1"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="1"} 3
ringcache_request_duration_seconds_bucket{op="pin",le="+Inf"} 6
ringcache_request_duration_seconds_sum{op="pin"} 3
ringcache_request_duration_seconds_count{op="pin"} 6
`)))
	problems, err := testutil.CollectAndLint(g)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, "a?_b", label("a\xff b"))
}

// TestProbeOfAStoreThatHangs: the answer comes in time, and there is one goroutine at most.
func TestProbeOfAStoreThatHangs(t *testing.T) {
	var p probe
	require.True(t, p.ask(func() {}, time.Minute))
	hang, calls := make(chan struct{}), 0
	for range 3 {
		require.False(t, p.ask(func() { calls++; <-hang }, time.Millisecond))
	}
	close(hang)
	for !p.ask(func() {}, time.Minute) {
	}
	require.Equal(t, 1, calls)
}

func TestHTTPListens(t *testing.T) {
	r := testRunner(t)
	w, err := r.openHTTP(context.Background())
	require.NoError(t, err)
	for _, d := range []time.Duration{w.server.ReadTimeout, w.server.ReadHeaderTimeout, w.server.WriteTimeout, w.server.IdleTimeout} {
		require.Positive(t, d)
	}
	other := newRunner(r.o)
	other.config.HTTP = w.addr
	_, err = other.openHTTP(context.Background())
	require.ErrorContains(t, err, "give another address by http, or off")
	resp, err := http.Get("http://" + w.addr + "/readyz")
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, w.close())
	require.NoError(t, w.close())
	_, err = net.Dial("tcp", w.addr)
	require.Error(t, err)

	other.config.HTTP = httpOff
	w, err = other.openHTTP(context.Background())
	require.NoError(t, err)
	require.NoError(t, w.close())
}

// TestConnectionsOfHTTPAreBounded: for one too many another one is closed: that which waits for longest, of
// the peer with the most.
func TestConnectionsOfHTTPAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := newBounded(inner, 3)
	l.young = 0
	var clients []net.Conn
	accept := func() *boundedConn {
		t.Helper()
		client, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		clients = append(clients, client)
		c, err := l.Accept()
		require.NoError(t, err)
		return c.(*boundedConn)
	}
	closed := func(i int) {
		t.Helper()
		_, err := clients[i].Read(make([]byte, 1))
		require.Error(t, err, "the server has closed it")
	}
	first, second, third := accept(), accept(), accept()
	first.begin()
	fourth := accept()
	closed(1)
	require.NoError(t, closeAgain(second), "its server closes it, too")
	first.end() // it has had its request just now
	fifth := accept()
	closed(2)
	require.Len(t, l.conns, 3)
	for _, c := range []*boundedConn{first, fourth, fifth} {
		require.Contains(t, l.conns, c)
		c.begin()
	}
	sixth := accept()
	closed(0)
	fourth.peer, fifth.peer, sixth.peer = "a", "b", "b"
	fourth.end()
	fifth.end()
	sixth.begin()
	accept()
	closed(4) // of the peer with two, that without a request
	require.Contains(t, l.conns, fourth)
	for c := range l.conns {
		require.NoError(t, c.Close())
	}
	require.NoError(t, closeAgain(third))
	require.Empty(t, l.conns)
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

// arrivals is a listener whose connections a test makes.
type arrivals struct {
	net.Listener
	queue chan net.Conn
}

func (a arrivals) Accept() (net.Conn, error) { return <-a.queue, nil }
func (a arrivals) Close() error              { return nil }

// TestYoungConnectionsAreNotClosed: whoever connects all the time does not close what has just come, and may
// be about to ask. The next one waits until one is not young any more, or ends, or the listener does.
func TestYoungConnectionsAreNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arrivals{queue: make(chan net.Conn, 10)}
		l := newBounded(a, 2)
		for range 10 {
			conn, other := net.Pipe()
			defer other.Close()
			a.queue <- conn
		}
		var mu sync.Mutex
		var got []*boundedConn
		accept := func() { // in the background
			go func() {
				c, _ := l.Accept()
				mu.Lock()
				defer mu.Unlock()
				got = append(got, c.(*boundedConn))
			}()
		}
		came := func() []*boundedConn {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(got)
		}
		has := func(c *boundedConn) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			_, is := l.conns[c]
			return is
		}
		accept()
		accept()
		first := came()[0]
		accept()
		require.Len(t, came(), 2, "both are young")
		time.Sleep(youngHTTP - 1)
		require.Len(t, came(), 2)
		require.True(t, has(first))
		time.Sleep(time.Nanosecond)
		require.Len(t, came(), 3)
		require.False(t, has(first))
		accept()
		require.Len(t, came(), 4, "the second one is as old")
		accept()
		require.Len(t, came(), 4)
		require.NoError(t, came()[3].Close())
		require.Len(t, came(), 5, "one has ended")
		accept()
		require.Len(t, came(), 5)
		require.NoError(t, l.Close())
		require.Len(t, came(), 6, "the listener has ended: it is asked, and would say so")
		for _, c := range came() {
			_ = c.Close() // some are closed
		}
	})
}

// closeAgain closes what is closed already.
func closeAgain(c net.Conn) error {
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing it again: %w", err)
	}
	return nil
}

// TestHTTPSlots: many connections that send a header slowly, or nothing, or take no answer, keep nobody else
// from an answer.
func TestHTTPSlots(t *testing.T) {
	r := testRunner(t)
	w, err := r.openHTTP(context.Background())
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close()) }()
	var attackers []net.Conn
	defer func() {
		for _, c := range attackers {
			_ = c.Close() // the server may have
		}
	}()
	attack := func() {
		for i := range 4 * maxHTTP {
			c, err := net.Dial("tcp", w.addr)
			require.NoError(t, err)
			attackers = append(attackers, c)
			_, _ = io.WriteString(c, []string{"", "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ", strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 100)}[i%3]) // which it may have closed
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for range 3 {
		attack()
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			resp, err := client.Get("http://" + w.addr + path)
			require.NoError(t, err, path)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err, path)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode, "%s: %s", path, body)
		}
	}
}

// TestFailedStartLeavesNothing: a segment that this start has made is removed again; one that was there stays.
func TestFailedStartLeavesNothing(t *testing.T) {
	c := testConfig(t)
	c.Disk = filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(c.Disk, nil, 0o600))
	r := newRunner(RunOptions{Config: c, Log: io.Discard})
	require.ErrorContains(t, r.run(context.Background()), "disk "+c.Disk)
	left, err := os.ReadDir(c.ShmDir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoFileExists(t, c.Socket)

	good := c
	good.Disk = ""
	l, err := good.open(context.Background(), r.log, nil)
	require.NoError(t, err)
	l.fresh = false
	require.NoError(t, l.close())
	require.Error(t, newRunner(RunOptions{Config: c, Log: io.Discard}).run(context.Background()))
	left, err = os.ReadDir(c.ShmDir)
	require.NoError(t, err)
	require.Len(t, left, 3, "the segment of an earlier daemon is not ours to remove")
}

// collectorOf collects given counters.
type collectorOf Counters

func (c collectorOf) Describe(to chan<- *prometheus.Desc) { (&collector{}).Describe(to) }

func (c collectorOf) Collect(to chan<- prometheus.Metric) {
	collectServer(Counters(c), func(m metric, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
	}, to)
}
