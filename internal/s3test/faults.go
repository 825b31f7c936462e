package s3test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Faults is a store on loopback that passes requests on to another one, and fails as a test wants.
type Faults struct {
	server *httptest.Server
	next   http.Handler

	mu  sync.Mutex
	do  Fault // guarded by mu
	end chan struct{}
}

// A Fault answers a request, and returns true, or returns false for one that is passed on.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool

// NewFaults runs the store until the end of the test. next is a Fake, or Proxy of a real server.
func NewFaults(t testing.TB, next http.Handler) *Faults {
	t.Helper()
	f := &Faults{next: next, end: make(chan struct{})}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		close(f.end)
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// Proxy returns a handler that passes requests on to a server as they are.
func Proxy(endpoint string) http.Handler {
	u, err := url.Parse(endpoint)
	if err != nil {
		panic(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host // the Host header is signed, and stays
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// Endpoint returns http://HOST:PORT.
func (f *Faults) Endpoint() string { return f.server.URL }

// URL is that of a level, with a prefix.
func (f *Faults) URL(prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?endpoint=" + f.Endpoint()
}

// Do replaces what fails; nil passes everything on. Several goroutines call it.
func (f *Faults) Do(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = fault
}

// Ended is closed with the test: a fault that hangs waits for it, or for the end of the request.
func (f *Faults) Ended() <-chan struct{} { return f.end }

// ServeHTTP answers a request.
func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	do := f.do
	f.mu.Unlock()
	if do == nil || !do(w, r, f.next) {
		f.next.ServeHTTP(w, r)
	}
}

// Status fails every request with a status and a code.
func Status(status int, code string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		Error(w, status, code)
		return true
	}
}

// Hang answers nothing.
func (f *Faults) Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
	select {
	case <-r.Context().Done():
	case <-f.end:
	}
	panic(http.ErrAbortHandler)
}

// Slow sends the answers of GET one byte at a time.
func (f *Faults) Slow(every time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method != http.MethodGet {
			return false
		}
		next.ServeHTTP(&slowly{w, r, every, f.end}, r)
		return true
	}
}

type slowly struct {
	http.ResponseWriter
	r     *http.Request
	every time.Duration
	end   <-chan struct{}
}

func (s *slowly) Write(p []byte) (int, error) {
	for i := range p {
		select {
		case <-time.After(s.every):
		case <-s.r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-s.end:
			panic(http.ErrAbortHandler)
		}
		if _, err := s.ResponseWriter.Write(p[i : i+1]); err != nil {
			return i, err
		}
		_ = http.NewResponseController(s.ResponseWriter).Flush()
	}
	return len(p), nil
}

// Change changes a byte of the answers of GET, at an offset of the answer; a different one each time if
// different is set.
func Change(offset int64, different bool) Fault {
	var mu sync.Mutex
	var n byte
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.Method != http.MethodGet || r.URL.Query().Has("list-type") {
			return false
		}
		mu.Lock()
		if n == 0 || different {
			n++
		}
		by := n
		mu.Unlock()
		next.ServeHTTP(&changed{ResponseWriter: w, left: offset, by: by}, r)
		return true
	}
}

type changed struct {
	http.ResponseWriter
	left   int64
	by     byte
	status int
}

func (c *changed) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *changed) Write(p []byte) (int, error) {
	if (c.status == 0 || c.status < 300) && c.left >= 0 && c.left < int64(len(p)) {
		q := append([]byte(nil), p...)
		q[c.left] ^= c.by
		p = q
	}
	c.left -= int64(len(p))
	return c.ResponseWriter.Write(p)
}
