package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringcache/ringcache/internal/passwordfile"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
	sharedstate "github.com/ringcache/ringcache/kv/directory/shared"
	"github.com/ringcache/ringcache/lmcache/controller"
	"github.com/ringcache/ringcache/lmcache/coordinator"
	"github.com/ringcache/ringcache/lmcache/kvevents"
)

type directoryCommand struct {
	HTTP      string   `default:"127.0.0.1:9300" help:"Address for LMCache's servers (0.5.7), routers and /metrics."`
	Pull      string   `placeholder:"HOST:PORT" help:"LMCache's controller: where workers push (controller_pull_url)."`
	Reply     string   `placeholder:"HOST:PORT" help:"LMCache's controller: where it answers (controller_reply_url)."`
	Heartbeat string   `placeholder:"HOST:PORT" help:"LMCache's controller: heartbeats. Workers are told of it."`
	Events    []string `sep:"none" placeholder:"SOURCE" help:"KV events of a vLLM engine. May be repeated."`
	Redis     string   `placeholder:"URL" help:"Directories with this Redis share what workers of the controller report."`

	RedisUser         string `placeholder:"NAME" help:"User at the Redis."`
	RedisPasswordFile string `placeholder:"FILE" help:"File with the password of the Redis."`

	ChunkSize      int           `default:"256" help:"Tokens of a chunk, as LMCache has it."`
	Hash           kv.Algorithm  `default:"builtin" help:"Hash of the workers: builtin, sha256_cbor or xxhash_cbor."`
	Seed           string        `default:"0" help:"PYTHONHASHSEED of the workers."`
	Timeout        time.Duration `default:"2m" help:"Longest time without a heartbeat of a worker."`
	MaxEntries     int           `default:"67108864" help:"The most entries, of about 40 bytes each."`
	MaxObjects     int           `default:"1048576" help:"The most objects of which sizes and tokens are kept."`
	MaxWorkers     int           `default:"16384" help:"The most workers."`
	MaxConnections int           `default:"4096" help:"The most connections of HTTP. For one more an idle one ends."`
	ErrorsToLog    bool          `name:"log" negatable:"" default:"true" help:"Log to standard error."`
}

// Help is the end of ringcache directory --help.
func (directoryCommand) Help() string {
	return `It knows which engines hold which chunks of KV, and answers who holds the longest prefix of a prompt.
Workers of LMCache's in-process engine report to it as to LMCache's own controller, servers of 0.5.7 as to its
coordinator, and it follows the KV events of vLLM. SOURCE is ENDPOINT,instance=NAME,model=NAME, and
also ,replay=ENDPOINT if the engine has such an endpoint. Controller, coordinator and events have --max-entries each;
an entry is a chunk at a place.

It has no authentication, as LMCache's own have none: let only engines and routers reach its addresses. Nothing is
kept on a disk. After a restart workers of the controller tell all that they have, and so do engines with a replay
endpoint; servers of 0.5.7 are known again with their next events.

Directories that are given the same --redis, such as redis://HOST:6379/3, know of all workers of the controller,
whichever they report to, and one that begins knows what the others do. The addresses of a worker lead to one of them
at a time. Look-ups do not wait for Redis.

SIGTERM and SIGINT end it. The exit status is 0 then, and 1 after an error.`
}

// Run serves until a signal.
func (c directoryCommand) Run() error {
	ctx, stop := interruptible()
	defer stop()
	log := slog.New(slog.DiscardHandler)
	if c.ErrorsToLog {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return c.run(ctx, log, nil)
}

// run serves until ctx ends. ready, if not nil, gets the addresses by name.
func (c directoryCommand) run(ctx context.Context, log *slog.Logger, ready func(map[string]string)) (err error) {
	sources := make([]kvevents.Source, len(c.Events))
	names := map[string]bool{}
	for i, text := range c.Events {
		if sources[i], err = eventSource(text); err != nil {
			return err
		}
		if names[sources[i].Instance] {
			return fmt.Errorf("--events %s: another source has this instance", text)
		}
		names[sources[i].Instance] = true
		sources[i].Logger = log
	}
	faces := map[string]*directory.Directory{}
	for _, face := range []string{"controller", "coordinator", "events"} {
		faces[face] = directory.New(directory.Options{
			MaxWorkers: c.MaxWorkers, MaxEntries: c.MaxEntries, Timeout: c.Timeout,
			Shared: c.Redis != "" && face == "controller",
		})
	}
	state, err := c.share(ctx, faces["controller"], log)
	if err != nil {
		return err
	}
	defer state.end()
	// Workers are told of the socket for heartbeats, so it is there before any of them is answered.
	listeners := map[string]net.Listener{}
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // again, but after an error
		}
	}()
	addrs := map[string]string{}
	for name, addr := range map[string]string{
		"heartbeat": c.Heartbeat, "pull": c.Pull, "reply": c.Reply, "http": c.HTTP,
	} {
		if addr == "" {
			continue
		}
		if listeners[name], err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err != nil {
			delete(listeners, name)
			return fmt.Errorf("%s: %w", name, err)
		}
		addrs[name] = listeners[name].Addr().String()
		log.Info("listening", "what", name, "address", addrs[name])
	}
	web, err := coordinator.New(coordinator.Options{
		Directory: faces["coordinator"], ChunkTokens: c.ChunkSize, MaxObjects: c.MaxObjects,
	})
	if err != nil {
		return err
	}
	scheme := kv.Scheme{Algorithm: c.Hash, ChunkTokens: c.ChunkSize, Seed: c.Seed, Legacy: true, KeepTail: true}
	workers, err := controller.New(controller.Options{
		Directory: faces["controller"], Scheme: scheme, Heartbeat: addrs["heartbeat"], Logger: log,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(directoryMetrics(faces, web, workers, state), promhttp.HandlerOpts{}))
	mux.Handle("POST /events/longest", kvevents.Handler(faces["events"]))
	mux.Handle("/", web.Handler())
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog:  slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState: newConnections(c.MaxConnections).state,
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	begin := func(what string, serve func() error) {
		work.Go(func() {
			if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	for name, l := range listeners {
		serve := map[string]func(net.Listener) error{
			"heartbeat": workers.ServeHeartbeat, "pull": workers.ServePull,
			"reply": workers.ServeReply, "http": server.Serve,
		}[name]
		begin(name, func() error { return serve(l) })
	}
	for _, s := range sources {
		begin("events", func() error { return kvevents.Follow(ctx, faces["events"], s) })
	}
	if ready != nil && ctx.Err() == nil {
		ready(addrs)
	}
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticks.C:
			n := web.Expire()
			for _, d := range faces {
				n += d.Expire()
			}
			if n > 0 {
				log.Info("workers without a heartbeat were dropped", "workers", n)
			}
		}
	}
	workers.Close()
	_ = server.Close() // answers that are under way are about what has ended
	state.end()
	work.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// sharing is what --redis has begun.
type sharing struct {
	state *sharedstate.State // nil without --redis
	end   func()             // tells what is not told yet; may be called again
}

func (s *sharing) counts() (c sharedstate.Counts) {
	if s.state != nil {
		c = s.state.Counts()
	}
	return c
}

// share loads what other directories have told, and goes on with that until end.
func (c directoryCommand) share(ctx context.Context, d *directory.Directory, log *slog.Logger) (*sharing, error) {
	if c.Redis == "" {
		return &sharing{end: func() {}}, nil
	}
	o := sharedstate.Options{
		Directory: d, URL: c.Redis, User: c.RedisUser, Face: "controller", Timeout: c.Timeout, Logger: log,
	}
	if c.RedisPasswordFile != "" {
		var err error
		if o.Password, err = passwordfile.Read(c.RedisPasswordFile); err != nil {
			return nil, fmt.Errorf("--redis-password-file: %w", err)
		}
	}
	s, err := sharedstate.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("--redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // to the end of what reports to it
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return &sharing{s, func() { cancel(); <-done }}, nil
}

// eventSource reads an argument of --events.
func eventSource(text string) (kvevents.Source, error) {
	endpoint, rest, _ := strings.Cut(text, ",")
	s := kvevents.Source{Endpoint: endpoint}
	for field := range strings.SplitSeq(rest, ",") {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "instance":
			s.Instance = value
		case "model":
			s.Model = value
		case "replay":
			s.Replay = value
		case "":
		default:
			return s, fmt.Errorf("--events %s: %q is neither instance, model nor replay", text, name)
		}
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("--events %s: %w", text, err)
	}
	return s, nil
}

// connections bounds those of HTTP. For one that is too many an idle one goes.
type connections struct {
	most int
	mu   sync.Mutex
	all  map[net.Conn]bool // whether it is idle
}

func newConnections(most int) *connections { return &connections{most: most, all: map[net.Conn]bool{}} }

func (l *connections) state(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(l.all, c)
		return
	case http.StateNew:
		if len(l.all) >= l.most {
			worst := c
			for other, idle := range l.all { // in any order
				if idle {
					worst = other
					break
				}
			}
			_ = worst.Close() // its server notices
			if delete(l.all, worst); worst == c {
				return
			}
		}
	default:
		if _, known := l.all[c]; !known {
			return // it was closed here
		}
	}
	l.all[c] = state == http.StateIdle
}

// directoryMetrics are what /metrics has.
func directoryMetrics(
	faces map[string]*directory.Directory, web *coordinator.Server, workers *controller.Server, state *sharing,
) *prometheus.Registry {
	g := prometheus.NewRegistry()
	add := func(name, help string, counter bool, labels prometheus.Labels, value func() float64) {
		o := prometheus.Opts{Name: "ringcache_directory_" + name, Help: help, ConstLabels: labels}
		if counter {
			g.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(o), value))
		} else {
			g.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(o), value))
		}
	}
	for _, m := range []struct {
		name, help string
		counter    bool
		value      func(directory.Counts) float64
	}{
		{"instances", "Instances that have workers.", false,
			func(c directory.Counts) float64 { return float64(c.Instances) }},
		{"workers", "Workers that are registered.", false,
			func(c directory.Counts) float64 { return float64(c.Workers) }},
		{"chunks", "Chunks that somebody holds.", false, func(c directory.Counts) float64 { return float64(c.Chunks) }},
		{"entries", "Entries of a chunk and a place.", false,
			func(c directory.Counts) float64 { return float64(c.Entries) }},
		{"admitted_total", "Reports of a chunk that came.", true,
			func(c directory.Counts) float64 { return float64(c.Admitted) }},
		{"evicted_total", "Reports of a chunk that went.", true,
			func(c directory.Counts) float64 { return float64(c.Evicted) }},
		{"gaps_total", "Places where reports were lost.", true,
			func(c directory.Counts) float64 { return float64(c.Gaps) }},
		{"refused_total", "Reports for which there was no room.", true,
			func(c directory.Counts) float64 { return float64(c.Refused) }},
		{"expired_total", "Workers that were dropped without a heartbeat.", true,
			func(c directory.Counts) float64 { return float64(c.Expired) }},
		{"synced_total", "Full synchronisations.", true, func(c directory.Counts) float64 { return float64(c.Synced) }},
	} {
		for face, d := range faces {
			add(m.name, m.help, m.counter, prometheus.Labels{"face": face},
				func() float64 { return m.value(d.Counts()) })
		}
	}
	for _, m := range []struct {
		name, help string
		counter    bool
		value      func() float64
	}{
		{"controller_connections", "Connections of the controller's sockets.", false,
			func() float64 { return float64(workers.Counts().Connections) }},
		{"controller_messages_total", "Messages to the controller.", true,
			func() float64 { return float64(workers.Counts().Messages) }},
		{"controller_refused_total", "Messages and connections that the controller refused.", true,
			func() float64 { return float64(workers.Counts().Refused) }},
		{"coordinator_applied_total", "Batches of events that were applied.", true,
			func() float64 { return float64(web.Counts().Applied) }},
		{"coordinator_duplicates_total", "Batches of events that had come before.", true,
			func() float64 { return float64(web.Counts().Duplicates) }},
		{"coordinator_stale_total", "Batches of events of an ended incarnation.", true,
			func() float64 { return float64(web.Counts().Stale) }},
		{"coordinator_objects", "Objects of which sizes and tokens are kept.", false,
			func() float64 { return float64(web.Counts().Objects) }},
		{"coordinator_full_total", "Objects for which there was no room.", true,
			func() float64 { return float64(web.Counts().Full) }},
		{"coordinator_streams_with_gap", "Instances that have lost events since they began.", false,
			func() float64 { return float64(web.Counts().StreamsWithGap) }},
		{"shared_up", "Whether the last exchange with the Redis of --redis went well.", false,
			func() float64 {
				if state.counts().Up {
					return 1
				}
				return 0
			}},
		{"shared_told_total", "Changes of workers that other directories were told.", true,
			func() float64 { return float64(state.counts().Told) }},
		{"shared_applied_total", "Changes of workers that other directories have told.", true,
			func() float64 { return float64(state.counts().Applied) }},
		{"shared_loads_total", "Times that all that Redis has was loaded.", true,
			func() float64 { return float64(state.counts().Loads) }},
		{"shared_conflicts_total", "Changes of workers of which this directory had news, too.", true,
			func() float64 { return float64(state.counts().Conflicts) }},
		{"shared_unreadable_total", "Parts of what Redis has that were skipped.", true,
			func() float64 { return float64(state.counts().Unreadable) }},
		{"shared_errors_total", "Exchanges with Redis that failed.", true,
			func() float64 { return float64(state.counts().Errors) }},
	} {
		add(m.name, m.help, m.counter, nil, m.value)
	}
	return g
}
