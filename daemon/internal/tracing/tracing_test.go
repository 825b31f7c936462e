package tracing

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// received is a collector.
type received struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
}

func collect(t testing.TB) *received {
	c := &received{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var m collector.ExportTraceServiceRequest
		if err != nil || q.URL.Path != "/v1/traces" || proto.Unmarshal(body, &m) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, r := range m.ResourceSpans {
			for _, s := range r.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// named returns the spans of a name.
func (c *received) named(name string) (out []*otlp.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

func open(t testing.TB, url string, oneIn int) *Tracer {
	t.Helper()
	tr, err := Open(t.Context(), Options{URL: url, OneIn: oneIn, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

func parent(flags string) Caller {
	return func(field string) string {
		if field == "traceparent" {
			return "00-" + traceID + "-" + spanID + "-" + flags
		}
		return ""
	}
}

func key(name string) tier.Key { return tier.Key{Space: "s", Name: name} }

func hex(b []byte) string { return fmt.Sprintf("%x", b) }

// TestSpansBelongTogether: a request is its caller's child, and a call of a level that of the request which wanted an
// object; other requests that wanted objects of the same call are linked.
func TestSpansBelongTogether(t *testing.T) {
	c := collect(t)
	tr := open(t, c.URL, 1)
	first := tr.Start("first", parent("01"))
	require.True(t, first.On())
	first.Want(key("a"), key("b"))
	first.Count(2, 1)
	first.End("")
	second := tr.Start("second", nil)
	second.Want(key("c"))
	second.End("it was refused")
	begin := time.Now()
	tr.Work(tier.Work{Kind: "fetch", Level: "disk", Begin: begin, Took: time.Second, Keys: []tier.Key{key("x"), key("b"), key("c"), key("a")}, Done: 4, Bytes: 7})
	tr.Close()

	one, two, work := c.named("first"), c.named("second"), c.named("fetch disk")
	require.Len(t, one, 1)
	require.Equal(t, traceID, hex(one[0].TraceId))
	require.Equal(t, spanID, hex(one[0].ParentSpanId))
	require.Len(t, two, 1)
	require.Empty(t, two[0].ParentSpanId)
	require.Equal(t, otlp.Status_STATUS_CODE_ERROR, two[0].Status.Code)
	require.Len(t, work, 1)
	require.Equal(t, traceID, hex(work[0].TraceId))
	require.Equal(t, one[0].SpanId, work[0].ParentSpanId)
	require.Equal(t, uint64(time.Second), work[0].EndTimeUnixNano-work[0].StartTimeUnixNano)
	require.Equal(t, uint64(begin.UnixNano()), work[0].StartTimeUnixNano)
	require.Len(t, work[0].Links, 1)
	require.Equal(t, two[0].SpanId, work[0].Links[0].SpanId)
}

// TestCallersDecide: what a caller does not trace is not traced here, and a context that can't be read is none.
func TestCallersDecide(t *testing.T) {
	c := collect(t)
	tr := open(t, c.URL, 1)
	require.False(t, tr.Start("not sampled", parent("00")).On())
	strange := tr.Start("strange", func(string) string { return "00-zz" })
	require.True(t, strange.On())
	strange.End("")
	tr.Close()
	require.Empty(t, c.named("not sampled"))
	require.Empty(t, c.named("strange")[0].ParentSpanId)

	rare := open(t, c.URL, 1<<40)
	require.False(t, rare.Start("rare", nil).On())
	require.True(t, rare.Start("asked for", parent("01")).On())
}

// TestWishesAreBounded: the newest are kept, and one that comes again is new.
func TestWishesAreBounded(t *testing.T) {
	tr := open(t, collect(t).URL, 1)
	s := tr.Start("s", nil)
	s.Want(key("old"), key("again"))
	for i := range maxInterests - 2 {
		s.Want(key(fmt.Sprint(i)))
	}
	s.Want(key("again"))
	require.Len(t, tr.interests, maxInterests)
	s.Want(key("new"))
	require.Len(t, tr.interests, maxInterests)
	require.Equal(t, maxInterests, tr.order.Len())
	require.NotContains(t, tr.interests, key("old"))
	require.Contains(t, tr.interests, key("again"))
	s.End("")
}

// TestOffCostsNothing: without a tracer nothing is allocated.
func TestOffCostsNothing(t *testing.T) {
	var off *Tracer
	keys := []tier.Key{key("a")}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s := off.Start("request", nil)
		s.Want(keys...)
		s.Count(1, 1)
		s.End("")
	}))
	require.False(t, off.Start("request", nil).On())
	off.Close()
}

// TestACollectorThatIsAwayCostsNoRequest: spans are dropped, and the end does not wait for long.
func TestACollectorThatIsAwayCostsNoRequest(t *testing.T) {
	c := collect(t)
	url := c.URL
	c.Close()
	tr := open(t, url, 1)
	for range 10_000 { // more than wait to be sent
		tr.Start("request", nil).End("")
	}
}
