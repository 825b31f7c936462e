package page

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bounds = []time.Duration{time.Microsecond, time.Millisecond, time.Second}

// fake is a daemon that has what a test says.
type fake struct {
	mu       sync.Mutex
	now      Now
	holdings []registry.Holding
	found    tier.Located
	leases   []wire.Lease
}

func (f *fake) set(do func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f)
}

// newPage returns a page of a fake daemon, which has a memory level and a disk. There is no segment unless do makes
// one.
func newPage(t testing.TB, do func(*Options)) (*Page, *fake) {
	t.Helper()
	f := &fake{now: Now{
		Ready: true, State: "ready", Up: time.Minute, Levels: []Level{
			{LevelState: tier.LevelState{Name: "memory", Usage: tier.Usage{Objects: 1000, Bytes: 50, Capacity: 100, Held: 25}}},
			{LevelState: tier.LevelState{Name: "disk", Usage: tier.Usage{Objects: -1, Bytes: -1, Held: -1, Evicted: -1}}},
		},
		Ops: []Op{{Name: "pin", Within: make([]uint64, len(bounds)+1)}},
	}}
	o := Options{
		Version: "ringcache test", Segment: "none", Dir: t.TempDir(), Size: 1 << 20, Streams: 2, Bounds: bounds,
		Events: NewEvents(), Logger: slog.New(slog.DiscardHandler),
		Now: func() Now {
			f.mu.Lock()
			defer f.mu.Unlock()
			n := f.now
			n.At = time.Now()
			return n
		},
		Holdings: func(n int) []registry.Holding {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.holdings[:min(n, len(f.holdings))]
		},
		Find: func(context.Context, tier.Key) (tier.Located, []wire.Lease) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.found, f.leases
		},
	}
	if do != nil {
		do(&o)
	}
	return New(o), f
}

// get asks the page.
func get(t testing.TB, p *Page, path string) (*httptest.ResponseRecorder, *html.Node) {
	t.Helper()
	w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	q.Host = "127.0.0.1:9401"
	p.Handler(false).ServeHTTP(w, q)
	n, err := html.Parse(strings.NewReader(w.Body.String()))
	require.NoError(t, err)
	return w, n
}

// textOf returns the text of an element, with single blanks.
func textOf(n *html.Node) string {
	var b strings.Builder
	for x := range n.Descendants() {
		if x.Type == html.TextNode {
			b.WriteString(x.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// segment makes a segment with objects of these names.
func segment(t testing.TB, o *Options, names ...string) *memory.Level {
	t.Helper()
	l, err := memory.Open(memory.Options{Name: "segment", Dir: o.Dir, Size: 1 << 20, MaxObjects: max(16, 2*len(names))})
	require.NoError(t, err)
	o.Segment = "segment"
	puts := make([]tier.Put, len(names))
	for i, n := range names {
		puts[i] = tier.Put{Object: tier.Object{Key: tier.Key{Space: "space", Name: n}, Size: 100}, Bytes: make([]byte, 100)}
	}
	l.Put(t.Context(), puts)
	for _, p := range puts {
		require.NoError(t, p.Err)
	}
	t.Cleanup(func() {
		require.NoError(t, l.CheckStructure())
		require.NoError(t, l.Close())
	})
	return l
}

// served serves the stream of a page over pipes, so that it can be tested with a clock of its own.
type served struct {
	testing.TB
	conns  chan net.Conn
	ended  chan struct{}
	server *http.Server
}

func serve(t testing.TB, p *Page) *served {
	s := &served{TB: t, conns: make(chan net.Conn), ended: make(chan struct{}), server: &http.Server{
		Handler: p.Stream(false), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, // as the daemon has them
	}}
	go func() { _ = s.server.Serve(s) }()
	return s
}

// end closes the server.
func (s *served) end() {
	close(s.ended)
	require.NoError(s, s.server.Close())
}

func (s *served) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.ended:
		return nil, net.ErrClosed
	}
}
func (s *served) Close() error   { return nil }
func (s *served) Addr() net.Addr { return &net.UnixAddr{} }

// ask connects and asks for the stream.
func (s *served) ask() net.Conn {
	client, server := net.Pipe()
	s.conns <- server
	_, err := client.Write([]byte("GET " + StreamPath + " HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	require.NoError(s, err)
	return client
}

// event is one that a browser dispatches.
type sentEvent struct{ name, data string }

// reader reads a stream as a browser does.
type reader struct {
	status int
	header http.Header
	in     *bufio.Scanner
}

func read(t testing.TB, c net.Conn) *reader {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // it ends with the connection
	require.NoError(t, err)
	r := &reader{status: resp.StatusCode, header: resp.Header, in: bufio.NewScanner(resp.Body)}
	r.in.Buffer(nil, 1<<20)
	r.in.Split(func(data []byte, atEOF bool) (int, []byte, error) { // CR, LF and both are ends of lines
		for i, b := range data {
			switch {
			case b == '\n', b == '\r' && i+1 < len(data) && data[i+1] != '\n':
				return i + 1, data[:i], nil
			case b == '\r' && i+1 < len(data):
				return i + 2, data[:i], nil
			}
		}
		return 0, nil, nil
	})
	return r
}

// next returns the next event.
func (r *reader) next() (e sentEvent, err error) {
	var lines []string
	for r.in.Scan() {
		field, value, _ := strings.Cut(r.in.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "":
			if lines != nil {
				e.data = strings.Join(lines, "\n")
				return e, nil
			}
			e = sentEvent{}
		case "event":
			e.name = value
		case "data":
			lines = append(lines, value)
		}
	}
	return e, errors.Join(errors.New("the stream has ended"), r.in.Err())
}

// until reads events up to the one of a step, which ends what is sent at once.
func (r *reader) until(t testing.TB) map[string]string {
	t.Helper()
	got := map[string]string{}
	for {
		e, err := r.next()
		require.NoError(t, err)
		if e.name == "step" {
			return got
		}
		require.Contains(t, partNames, e.name)
		got[e.name] = e.data
	}
}
