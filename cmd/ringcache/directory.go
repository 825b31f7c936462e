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

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/lmcache/controller"
	"github.com/ringcache/ringcache/lmcache/coordinator"
	"github.com/ringcache/ringcache/lmcache/kvevents"
)

type directoryCommand struct {
	HTTP      string   `name:"http" default:"127.0.0.1:9300" placeholder:"HOST:PORT" help:"Where LMCache's servers (0.5.7) send events, and routers ask. /metrics is there, too. Default ${default}."`
	Pull      string   `placeholder:"HOST:PORT" help:"LMCache's controller: where workers of the in-process engine push (controller_pull_url)."`
	Reply     string   `placeholder:"HOST:PORT" help:"LMCache's controller: where requests are answered (controller_reply_url)."`
	Heartbeat string   `placeholder:"HOST:PORT" help:"LMCache's controller: where heartbeats are answered. Workers are told of it."`
	Events    []string `sep:"none" placeholder:"SOURCE" help:"KV events of a vLLM engine: ENDPOINT,instance=NAME,model=NAME, and ,replay=ENDPOINT if it has one. May be repeated."`

	ChunkSize   int           `default:"256" help:"Tokens of a chunk, as LMCache has it. Default ${default}."`
	Hash        kv.Algorithm  `default:"builtin" help:"How workers of the in-process engine hash chunks: builtin, sha256_cbor or xxhash_cbor. Default ${default}."`
	Seed        string        `default:"0" help:"PYTHONHASHSEED of these workers. Default ${default}."`
	Timeout     time.Duration `default:"2m" help:"How long after its last heartbeat a worker of the controller is dropped. Default ${default}."`
	MaxEntries  int           `default:"67108864" help:"The most entries of a chunk and a place; each takes about 40 bytes. Default ${default}."`
	MaxObjects  int           `default:"1048576" help:"The most objects of LMCache's servers of which sizes and tokens are kept. Default ${default}."`
	MaxWorkers  int           `default:"16384" help:"The most workers. Default ${default}."`
	ErrorsToLog bool          `name:"log" negatable:"" default:"true" help:"Log to standard error."`
}

// Help is the end of ringcache directory --help.
func (directoryCommand) Help() string {
	return `It knows which engines hold which chunks of KV, and answers who holds the longest prefix of a prompt. Workers of
LMCache report to it as to LMCache's own controller or coordinator, and it follows the KV events of vLLM.

It has no authentication, as LMCache's own have none: let only engines and routers reach its addresses. Nothing is
kept on a disk. After a restart workers of the controller tell all that they have, and so do engines with a replay
endpoint; servers of 0.5.7 are known again with their next events.

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
	for i, text := range c.Events {
		if sources[i], err = eventSource(text); err != nil {
			return err
		}
		sources[i].Logger = log
	}
	d := directory.New(directory.Options{MaxWorkers: c.MaxWorkers, MaxEntries: c.MaxEntries, Timeout: c.Timeout})
	web, err := coordinator.New(coordinator.Options{Directory: d, ChunkTokens: c.ChunkSize, MaxObjects: c.MaxObjects})
	if err != nil {
		return err
	}
	scheme := kv.Scheme{Algorithm: c.Hash, ChunkTokens: c.ChunkSize, Seed: c.Seed, Legacy: true, KeepTail: true}
	workers, err := controller.New(controller.Options{Directory: d, Scheme: scheme, Logger: log})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(directoryMetrics(d, web, workers), promhttp.HandlerOpts{}))
	mux.Handle("/", web.Handler())
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
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
	addrs := map[string]string{}
	for _, at := range []struct {
		name, addr string
		serve      func(net.Listener) error
	}{
		{"heartbeat", c.Heartbeat, workers.ServeHeartbeat}, {"pull", c.Pull, workers.ServePull},
		{"reply", c.Reply, workers.ServeReply}, {"http", c.HTTP, server.Serve},
	} {
		if at.addr == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.addr)
		if err != nil {
			cancel(fmt.Errorf("%s: %w", at.name, err))
			break
		}
		addrs[at.name] = l.Addr().String()
		log.Info("listening", "what", at.name, "address", addrs[at.name])
		begin(at.name, func() error { return at.serve(l) })
	}
	for _, s := range sources {
		begin("events", func() error { return kvevents.Follow(ctx, d, s) })
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
			if n := d.Expire() + web.Expire(); n > 0 {
				log.Info("workers without a heartbeat were dropped", "workers", n)
			}
		}
	}
	workers.Close()
	_ = server.Close() // answers that are under way are about what has ended
	work.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
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

// directoryMetrics are what /metrics has.
func directoryMetrics(d *directory.Directory, web *coordinator.Server, workers *controller.Server) *prometheus.Registry {
	g := prometheus.NewRegistry()
	for _, m := range []struct {
		name, help string
		counter    bool
		value      func() float64
	}{
		{"instances", "Instances that have workers.", false, func() float64 { return float64(d.Counts().Instances) }},
		{"workers", "Workers that are registered.", false, func() float64 { return float64(d.Counts().Workers) }},
		{"chunks", "Chunks that somebody holds.", false, func() float64 { return float64(d.Counts().Chunks) }},
		{"entries", "Entries of a chunk and a place.", false, func() float64 { return float64(d.Counts().Entries) }},
		{"admitted_total", "Reports of a chunk that came.", true, func() float64 { return float64(d.Counts().Admitted) }},
		{"evicted_total", "Reports of a chunk that went.", true, func() float64 { return float64(d.Counts().Evicted) }},
		{"gaps_total", "Places where reports were lost.", true, func() float64 { return float64(d.Counts().Gaps) }},
		{"refused_total", "Reports for which there was no room.", true, func() float64 { return float64(d.Counts().Refused) }},
		{"expired_total", "Workers that were dropped without a heartbeat.", true, func() float64 { return float64(d.Counts().Expired) }},
		{"synced_total", "Full synchronisations.", true, func() float64 { return float64(d.Counts().Synced) }},
		{"controller_connections", "Connections of the controller's sockets.", false, func() float64 { return float64(workers.Counts().Connections) }},
		{"controller_messages_total", "Messages to the controller.", true, func() float64 { return float64(workers.Counts().Messages) }},
		{"controller_refused_total", "Messages and connections that the controller refused.", true, func() float64 { return float64(workers.Counts().Refused) }},
		{"coordinator_applied_total", "Batches of events that were applied.", true, func() float64 { return float64(web.Counts().Applied) }},
		{"coordinator_duplicates_total", "Batches of events that had come before.", true, func() float64 { return float64(web.Counts().Duplicates) }},
		{"coordinator_stale_total", "Batches of events of an ended incarnation.", true, func() float64 { return float64(web.Counts().Stale) }},
		{"coordinator_objects", "Objects of which sizes and tokens are kept.", false, func() float64 { return float64(web.Counts().Objects) }},
		{"coordinator_full_total", "Objects for which there was no room.", true, func() float64 { return float64(web.Counts().Full) }},
		{"coordinator_streams_with_gap", "Instances that have lost events since they began.", false, func() float64 { return float64(web.Counts().StreamsWithGap) }},
	} {
		name := "ringcache_directory_" + m.name
		if m.counter {
			g.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: m.help}, m.value))
		} else {
			g.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: m.help}, m.value))
		}
	}
	return g
}
