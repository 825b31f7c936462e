package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpOff is the address of a daemon without HTTP.
const httpOff = "off"

// web serves HTTP. The zero value serves nothing.
type web struct {
	addr   string // host and port
	server *http.Server
	served chan error
	once   sync.Once
	err    error
}

// openHTTP listens and serves, unless it is off. The web is not nil.
func (r *runner) openHTTP(ctx context.Context) (*web, error) {
	w := &web{}
	if r.config.HTTP == httpOff {
		return w, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", r.config.HTTP)
	if err != nil {
		return w, fmt.Errorf("http %s: %w; give another address by http, or off", r.config.HTTP, err)
	}
	w.addr = l.Addr().String()
	w.server = &http.Server{
		Handler:           r.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	w.served = make(chan error, 1)
	go func() { w.served <- w.server.Serve(&limited{Listener: l, free: make(chan struct{}, maxHTTP)}) }()
	r.log.Info("HTTP", "address", w.addr)
	return w, nil
}

// close ends the service of HTTP, and waits for answers that are under way, for a moment. Closing twice is fine.
func (w *web) close() error {
	w.once.Do(func() {
		if w.server == nil {
			return
		}
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

// handler answers three paths.
func (r *runner) handler() http.Handler {
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
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics(), promhttp.HandlerOpts{
		MaxRequestsInFlight: 4,
		Timeout:             20 * time.Second,
		ErrorLog:            slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
	}))
	return mux
}

func reply(w http.ResponseWriter, text string, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		text = err.Error()
	}
	_, _ = io.WriteString(w, text+"\n") // a client that went away
}

// maxHTTP is the most connections of HTTP at a time; others wait.
const maxHTTP = 64

// limited is a listener with a most of connections.
type limited struct {
	net.Listener
	free chan struct{} // a token for each connection
}

func (l *limited) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, l: l}, nil
}

type limitedConn struct {
	net.Conn
	l    *limited
	once sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.l.free })
	return err
}
