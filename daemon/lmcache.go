package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/lmcache/coordinator"
)

// lmcacheAddress is where clients of LMCache connect.
type lmcacheAddress struct {
	network, address string
	zmq              bool // otherwise gRPC
}

// parseLMCache reads an address as LMCache's own options have it.
func parseLMCache(text string) (lmcacheAddress, error) {
	u, err := url.Parse(text)
	if err != nil {
		return lmcacheAddress{}, fmt.Errorf("%q is no URL: %w", text, err)
	}
	zmq := u.Scheme == "ipc" || u.Scheme == "tcp"
	switch u.Scheme {
	case "grpc+unix", "ipc":
		if filepath.IsAbs(u.Path) && u.Host == "" && len(u.Path) <= maxSocket {
			return lmcacheAddress{"unix", u.Path, zmq}, nil
		}
	case "grpc", "tcp":
		if u.Port() == "" || strings.Trim(u.Path, "/") != "" {
			break
		}
		if !loopback(u.Host) { // the protocol has no password, and KV is what users have said
			return lmcacheAddress{}, fmt.Errorf("%q is reached from other machines, without a password: use %s://127.0.0.1:%s, or a unix socket", text, u.Scheme, u.Port())
		}
		return lmcacheAddress{"tcp", u.Host, zmq}, nil
	}
	return lmcacheAddress{}, fmt.Errorf("%q is not grpc+unix:///PATH or ipc:///PATH, with a path of at most %d bytes, and not grpc://127.0.0.1:PORT or tcp://127.0.0.1:PORT", text, maxSocket)
}

// lmcacheService serves LMCache's clients. A nil one serves nobody.
type lmcacheService struct {
	listening
	server    *lmcache.Server
	grpc, zmq protocolServer
	reporter  *coordinator.Reporter // nil without a coordinator
}

// reporter returns what tells the coordinator of the configuration.
func (c Config) reporter(o coordinator.ReporterOptions) (*coordinator.Reporter, error) {
	o.URL, o.Instance = c.LMCacheCoordinator, c.LMCacheInstance
	if o.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("this host has no name; give one by lmcache-instance: %w", err)
		}
		o.Instance = host + "-" + c.Name
	}
	return coordinator.NewReporter(o)
}

// lmcacheFile is where the protocol keeps what outlives the daemon.
func lmcacheFile(c Config) string {
	return filepath.Join(cmp.Or(c.ShmDir, shmfile.DefaultDir), c.Name+shmfile.EnginesSuffix)
}

// keptQuotas returns the quotas by HTTP of a level that an earlier daemon has kept, if there are any with the
// configuration.
func (c Config) keptQuotas(level string) map[string]int64 {
	if len(c.LMCache) == 0 {
		return nil
	}
	return lmcache.KeptQuotas(lmcacheFile(c), level)
}

// openLMCache opens what the configuration says. http is the address of HTTP, empty if that is off.
func (r *runner) openLMCache(ctx context.Context, http string) (_ *lmcacheService, err error) {
	if len(r.config.LMCache) == 0 {
		return nil, nil //nolint:nilnil // nothing is configured
	}
	segment := r.levels.memory.Segment()
	dir := cmp.Or(r.config.ShmDir, shmfile.DefaultDir)
	server, err := lmcache.NewServer(lmcache.Options{
		Registry: r.registry, Rooms: r.rooms, Store: r.levels.store, Memory: r.levels.memory, Segment: segment,
		Dir: dir, ChunkSize: r.config.LMCacheChunkSize,
		Engine: r.config.LMCacheEngine, Bodies: r.config.LMCacheBodies,
		State: lmcacheFile(r.config), Tracer: r.tracer, Logger: r.log,
	})
	if err != nil {
		return nil, err
	}
	s := &lmcacheService{
		listening: listening{key: "lmcache"}, server: server,
		grpc: lmcache.NewGRPC(server), zmq: lmcache.NewZMQ(server),
	}
	r.server.layouts = server.Layouts
	defer func() {
		if err != nil {
			s.shutdown(ctx) // nobody is served yet, so it does not wait
			err = errors.Join(err, s.close())
		}
	}()
	if r.config.LMCacheCoordinator != "" {
		_, port, _ := net.SplitHostPort(http)
		n, _ := strconv.Atoi(port) // a listener has one
		memory := lmcache.NewInMemory(server)
		s.reporter, err = r.config.reporter(coordinator.ReporterOptions{
			HTTPPort: n, Chunks: memory.Chunks, Changes: memory.Changes, ChunkTokens: memory.ChunkTokens, Logger: r.log,
		})
		if err != nil {
			return nil, err
		}
	}
	for _, text := range r.config.LMCache {
		a, err := parseLMCache(text)
		if err != nil {
			return nil, err
		}
		carrier := s.grpc
		if a.zmq {
			carrier = s.zmq
		}
		if err := s.listen(ctx, a.network, a.address, carrier); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// serve serves all listeners, and tells a coordinator until ctx ends.
func (s *lmcacheService) serve(ctx context.Context, tasks *sync.WaitGroup, failed chan<- error) {
	if s == nil {
		return
	}
	s.listening.serve(tasks, failed)
	if s.reporter != nil {
		tasks.Go(func() { s.reporter.Run(ctx) })
	}
}

// check reports that clients can't find a socket any more.
func (s *lmcacheService) check() error {
	if s == nil {
		return nil
	}
	return s.listening.check()
}

// shutdown lets calls that are under way end, until ctx ends.
func (s *lmcacheService) shutdown(ctx context.Context) {
	if s == nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { s.grpc.Shutdown(ctx) })
	both.Go(func() { s.zmq.Shutdown(ctx) })
	both.Wait()
}

// close closes what is open, and removes sockets.
func (s *lmcacheService) close() error {
	if s == nil {
		return nil
	}
	return s.listening.close()
}
