package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringcache/ringcache/daemon/internal/page"
)

// httpOff is the address of a daemon without HTTP.
const httpOff = "off"

// web serves HTTP. The zero value serves nothing.
type web struct {
	addr   string // host and port
	server *http.Server
	served chan error
	page   struct { // the goroutine that looks for it
		stop context.CancelFunc
		done chan struct{}
	}
	once sync.Once
	err  error
}

// openHTTP listens and serves, unless it is off. The web is not nil.
func (r *runner) openHTTP(ctx context.Context) (*web, error) {
	w := &web{}
	if r.config.HTTP == httpOff {
		return w, nil
	}
	l, err := listenHTTP(r.config, ctx)
	if err != nil {
		return w, err
	}
	w.addr = l.Addr().String()
	keys, err := httpKeys(r.config)
	if err != nil {
		return w, errors.Join(fmt.Errorf("http-key-file: %w", err), l.Close())
	}
	encrypted, err := newRenewed(r.config, r.log)
	if err != nil {
		return w, errors.Join(err, l.Close())
	}
	w.server = &http.Server{
		Handler:           r.handler(keys),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	w.served = make(chan error, 1)
	var bounded net.Listener = newBounded(l, r.config.files().http) // a reload writes to the configuration
	at := []any{"address", w.addr}
	if encrypted != nil {
		bounded = tls.NewListener(bounded, encrypted.server())
		at = append(at, "tls", true, "client-certificates", r.config.HTTPClientCA != "")
	}
	go func() { w.served <- w.server.Serve(bounded) }()
	looking, stop := context.WithCancel(context.WithoutCancel(ctx)) // until all is closed
	w.page.stop, w.page.done = stop, make(chan struct{})
	go func() {
		defer close(w.page.done)
		r.page.Run(looking)
	}()
	r.log.Info("HTTP", at...)
	return w, nil
}

func listenHTTP(c Config, ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("http %s: %w; give another address by http, or off", c.HTTP, err)
	}
	return l, nil
}

// close ends the service of HTTP, and waits for answers that are under way, for a moment. Closing twice is fine.
func (w *web) close() error {
	w.once.Do(func() {
		if w.server == nil {
			return
		}
		w.page.stop() // ends streams, for which Shutdown would wait
		<-w.page.done
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if w.server.Shutdown(ctx) != nil {
			w.err = w.server.Close()
		}
		if err := <-w.served; !errors.Is(err, http.ErrServerClosed) {
			w.err = errors.Join(w.err, err)
		}
	})
	return w.err
}

// handler answers a few paths, all but probes only to those who have one of the keys, if there are any, and a
// certificate, if those of clients are asked for. An answer is whole before its first byte is sent, so that a
// client that takes it slowly has nothing but its connection, and one that goes away is no error in the log. The
// stream of the page alone is sent as it comes.
func (r *runner) handler(keys []secret) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, "alive", r.healthy())
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		remark, err := r.ready()
		text := "ready"
		if remark != "" {
			text += "; " + remark
		}
		reply(w, text, err)
	})
	metrics := promhttp.HandlerFor(r.metrics(), promhttp.HandlerOpts{
		Timeout:  20 * time.Second,
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	})
	turns := make(chan struct{}, 2) // others wait: there are at most as many as connections
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, q *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			metrics.ServeHTTP(w, q)
		case <-q.Context().Done():
		}
	})
	if len(r.config.LMCache) > 0 {
		r.handleLMCache(mux)
	} else {
		mux.HandleFunc("GET /{$}", toPage(http.NotFound))
	}
	guarded := len(keys) > 0 || r.config.HTTPCert != "" // by TLS no website can have its own name lead here
	looks := r.page.Handler(guarded)
	mux.Handle("/page", looks)
	mux.Handle(page.Path, looks)
	answers, stream := withKeys(keys, mux), withKeys(keys, r.page.Stream(guarded))
	if r.config.HTTPClientCA != "" {
		answers, stream = withCertificates(answers), withCertificates(stream)
	}
	answers = traceHTTP(r.tracer, answers)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if c, ok := q.Context().Value(connKey{}).(*boundedConn); ok {
			c.begin()
			defer c.end()
		}
		if q.URL.Path == page.StreamPath {
			stream.ServeHTTP(w, q)
			return
		}
		whole := answer{header: w.Header(), status: http.StatusOK}
		answers.ServeHTTP(&whole, q)
		w.WriteHeader(whole.status)
		_, _ = w.Write(whole.body.Bytes()) // a client that went away
	})
}

// toPage leads browsers from / to the page, and hands everybody else on.
func toPage(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if strings.Contains(q.Header.Get("Accept"), "text/html") {
			w.Header().Set("Location", strings.TrimPrefix(page.Path, "/"))
			w.WriteHeader(http.StatusFound)
			return
		}
		next(w, q)
	}
}

// answer is an answer that is not sent yet.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// reply answers with a text, or that something is not as it should be.
func reply(w http.ResponseWriter, text string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text+"\n") // to memory
}
