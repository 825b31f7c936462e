package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// maxPProf is the most connections for profiles at a time.
const maxPProf = 4

// profiles serves profiles of the process. The zero value serves nothing.
type profiles struct {
	addr   string
	server *http.Server
	served chan error
}

// openPProf serves profiles at the address of the configuration, which other machines do not reach, with the keys
// of HTTP. It has a listener of its own: a profile takes half a minute, and a probe must not wait for it.
func (r *runner) openPProf(ctx context.Context) (*profiles, error) {
	p := &profiles{}
	if r.config.PProf == "" {
		return p, nil
	}
	keys, err := httpKeys(r.config)
	if err != nil {
		return p, fmt.Errorf("http-key-file: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.config.PProf)
	if err != nil {
		return p, fmt.Errorf("pprof %s: %w; give another address", r.config.PProf, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	p.addr = l.Addr().String()
	p.server = &http.Server{
		Handler: withKeys(keys, mux), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	p.served = make(chan error, 1)
	bounded := newBounded(l, maxPProf)
	go func() { p.served <- p.server.Serve(bounded) }()
	r.log.Info("profiles", "address", "http://"+p.addr+"/debug/pprof/")
	return p, nil
}

// close ends the service, and profiles that are being made.
func (p *profiles) close() error {
	if p.server == nil {
		return nil
	}
	err := p.server.Close()
	if ended := <-p.served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
