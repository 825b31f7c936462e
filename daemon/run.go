package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/page"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
	shmmemory "github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/tier"
)

// RunOptions are what Run needs. Config is.
type RunOptions struct {
	Config Config
	// Reload, if not nil, makes the configuration again when the process gets SIGHUP.
	Reload func() (Config, error)
	// Version is the program's, for people.
	Version string
	// Log gets the log; nil is stderr.
	Log io.Writer
}

// ballast is memory that nobody touches, and that the system never gives: the garbage collector takes it for a part of
// what is in use, half of which may become garbage before it runs.
// See docs/decisions.md, "Garbage has room beside small indexes".
const ballast = 64 << 20

// newBallast makes the ballast. There is none with a limit of memory (GOMEMLIMIT): it would count as in use,
// so the collector would run all the time though the process has less.
func newBallast() []byte {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return nil
	}
	return make([]byte, ballast)
}

// Run is the whole daemon: it opens the levels and the socket, serves until ctx ends or the process gets
// SIGTERM or SIGINT, and closes everything: no new requests, pending writes to lower levels are done as far
// as Config.Drain allows, and the rest stays in the segment for the next daemon, with all leases. A second
// signal makes Run return at once, with an error and nothing closed, as if the process had been killed; the
// process should end then. SIGHUP makes it read its configuration again.
//
// A process runs one at a time, since signals, and sockets and messages of a service manager, are the process's.
func Run(ctx context.Context, o RunOptions) error {
	if err := o.Config.Validate(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// indexes are large, and requests leave little garbage: so that takes half of what they do, not as much
		debug.SetGCPercent(50)
		defer runtime.KeepAlive(newBallast())
	}
	r := newRunner(o)
	defer func() { r.records.flush(flushTime) }()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	for stopping := false; ; {
		select {
		case err := <-done:
			if ctx.Err() != nil && errors.Is(err, context.Canceled) { // while it started: everything is closed
				err = nil
			}
			return err
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				select {
				case r.reloads <- struct{}{}:
				default: // one is asked for already
				}
			case stopping:
				return fmt.Errorf("ended at once by a second signal, %v: what was still to be written, and all leases, are in the segment for the next daemon", s)
			default:
				stopping = true
				r.log.Info("ending", "signal", s.String())
				stop()
			}
		}
	}
}

// runner is one run of a daemon. Fields are set by the goroutine of run, before phase is that in which others read
// them.
type runner struct {
	o       RunOptions
	config  Config
	level   *slog.LevelVar
	log     *slog.Logger
	records *asyncLog // of log
	page    *page.Page
	notify  notifier
	reloads chan struct{}

	tracer   *tracing.Tracer // nil if it is not configured
	levels   *levels
	registry *registry.Registry // of the sessions of all protocols
	rooms    *fair.Rooms        // of their requests
	server   *Server
	socket   *socket
	lmcache  *lmcacheService // nil if it is not configured
	values   []*valueService
	phase    atomic.Int32 // see phaseOpening
	probe    probe
}

// newRunner makes a runner with its log. It opens nothing.
func newRunner(o RunOptions) *runner {
	r := &runner{o: o, config: o.Config, level: &slog.LevelVar{}, reloads: make(chan struct{}, 1)}
	r.level.Set(logLevel(o.Config.LogLevel))
	if o.Log == nil {
		o.Log = os.Stderr
	}
	ho := &slog.HandlerOptions{Level: r.level}
	var h slog.Handler = slog.NewTextHandler(o.Log, ho)
	if o.Config.LogFormat == "json" {
		h = slog.NewJSONHandler(terminal.Writer(o.Log), ho)
	}
	events := page.NewEvents()
	h, r.records = newAsyncHandler(events.Handler(h)) // of the levels, too
	r.log = slog.New(h)
	r.page = r.newPage(events)
	r.notify = notifier{r.log}
	return r
}

// logLevel returns the level of a text that was validated.
func logLevel(text string) slog.Level {
	var l slog.Level
	if l.UnmarshalText([]byte(text)) != nil {
		return slog.LevelInfo
	}
	return l
}

// run starts, serves and ends.
func (r *runner) run(ctx context.Context) (err error) {
	for _, h := range r.config.Hints() {
		r.log.Warn(h.Text, "setting", h.Key)
	}
	web, webErr := r.openHTTP(ctx) // first, so that it answers while the levels are opened
	defer func() { err = errors.Join(err, web.close()) }()
	profiles, err := r.openPProf(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, profiles.close()) }()
	if r.tracer, err = r.openTracer(ctx); err != nil {
		return err
	}
	defer r.tracer.Close()
	r.notify.status("opening the levels")
	r.levels, err = r.config.open(ctx, r.log, r.tracer)
	if err != nil {
		return err
	}
	defer func() {
		r.phase.Store(phaseClosed)
		err = errors.Join(err, web.close(), r.levels.close())
	}()
	if webErr != nil { // that another daemon has the segment would have been the better reason
		return webErr
	}
	if r.socket, err = openSocket(ctx, r.config.Socket, r.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.socket.close()) }()
	o := r.serverOptions()
	if r.registry, err = openRegistry(o); err != nil {
		return err
	}
	defer r.registry.Close()
	r.rooms = newRooms()
	o.registry, o.rooms = r.registry, r.rooms
	if r.server, err = NewServer(o); err != nil {
		return err
	}
	r.server.tracer = r.tracer
	if r.lmcache, err = r.openLMCache(ctx, web.addr); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.lmcache.close()) }()
	if err := r.openValues(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.closeValues()) }()
	return r.serve(ctx)
}

func (r *runner) serverOptions() ServerOptions {
	return ServerOptions{
		Store: r.levels.store, Memory: r.levels.memory, ShmDir: r.config.ShmDir, Grace: r.config.Grace,
		Limits: r.config.limits(), Version: r.o.Version, Logger: r.log,
	}
}

// serve serves until ctx ends, or a listener fails.
func (r *runner) serve(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	background, stop := context.WithCancel(context.Background())
	defer stop()
	listeners := len(r.socket.listeners) + len(r.config.LMCache)
	for _, s := range r.values {
		listeners += len(s.listeners)
	}
	failed := make(chan error, listeners)
	for _, l := range r.socket.listeners {
		tasks.Go(func() {
			if err := r.server.Serve(l); err != nil {
				failed <- fmt.Errorf("the listener at %s: %w", l.Addr(), err)
			}
		})
	}
	r.lmcache.serve(background, &tasks, failed)
	for _, s := range r.values {
		s.serve(&tasks, failed)
	}
	tasks.Go(func() { r.giveBack(background) })
	r.levels.fresh = false
	r.phase.Store(phaseServing)
	r.notify.ready("serving")
	where := []any{"version", r.o.Version, "socket", r.socket.listeners[0].Addr().String(), "segment", r.config.Name,
		"size", sizes.Format(r.config.Size)}
	for _, x := range r.config.lower() {
		where = append(where, x.key, x.place)
	}
	if len(r.config.LMCache) > 0 {
		where = append(where, "lmcache", strings.Join(r.config.LMCache, ","))
	}
	if r.config.LMCacheCoordinator != "" {
		where = append(where, "coordinator", r.config.LMCacheCoordinator)
	}
	for _, x := range r.config.valueProtocols() {
		if len(x.addresses) > 0 {
			where = append(where, x.key, strings.Join(x.addresses, ","))
		}
	}
	r.log.Info("serving", append(where, "http", r.config.HTTP, "pid", os.Getpid())...)
	if r.config.Prefault {
		tasks.Go(func() { r.prefault(background) })
	}
	watchdog, stopWatchdog := r.notify.watchdog()
	defer stopWatchdog()
	var err error
	for ctx.Err() == nil && err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		case <-r.reloads:
			r.reload()
		case <-watchdog:
			if r.healthy() == nil {
				r.notify.alive()
			}
		}
	}
	stop()
	return errors.Join(err, r.drain())
}

// giveBack returns memory to the system after requests that took much, of which the runtime would keep a part
// for minutes. It is the whole process's, which is why no Server does it.
func (r *runner) giveBack(ctx context.Context) {
	ticks := time.NewTicker(5 * time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if r.rooms.BurstEnded() {
				debug.FreeOSMemory()
			}
		}
	}
}

// drain ends the server, and waits for what is to be written.
func (r *runner) drain() error {
	r.phase.Store(phaseDraining)
	r.notify.stopping(r.config.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), r.config.Drain)
	defer cancel()
	start := time.Now()
	err := r.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		r.log.Warn("connections were closed before their requests had ended: raise drain if clients need longer")
		err = nil
	}
	r.lmcache.shutdown(ctx)
	r.shutdownValues(ctx)
	r.registry.Close() // all leases stay as they are
	left, drainErr := r.levels.store.Drain(ctx)
	switch {
	case drainErr == nil:
		r.log.Info("drained", "took", time.Since(start).Round(time.Millisecond).String())
	case errors.Is(drainErr, context.DeadlineExceeded):
		r.log.Warn("objects were not written to all lower levels in time: they stay in the segment, and the next daemon writes them; raise drain to wait longer", "objects", len(left))
	case errors.Is(drainErr, tier.ErrFull): // as long as the daemon ran: a slow level is no failure of its end
		r.log.Warn("lower levels may lack objects, which stay in memory: make room there, as the error says", "error", drainErr)
	default:
		err = errors.Join(err, drainErr)
	}
	return err
}

// prefault maps the pages of the segment, beside the service.
func (r *runner) prefault(ctx context.Context) {
	report, err := r.levels.memory.Prepare(ctx, shmmemory.Options{Prefault: true})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.log.Warn("the pages of the segment could not be mapped ahead; the first use of each takes longer: see to what the error says, or leave out prefault", "error", err)
	case !report.Prefault.Obtained:
		r.log.Warn("the pages of the segment could not be mapped ahead; the first use of each takes longer: see to what the reason says, or leave out prefault", "reason", report.Prefault.Reason)
	default:
		r.log.Info("the pages of the segment are mapped", "bytes", report.Mapped)
	}
}
