package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/daemon/internal/lmcache"
	"github.com/ringcache/ringcache/internal/shmfile"
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

// lmcacheCarrier serves LMCache's clients by gRPC or by ZMQ.
type lmcacheCarrier interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context)
}

// listen listens at an address that is no path.
func (a lmcacheAddress) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, a.network, a.address)
	if err != nil {
		return nil, fmt.Errorf("lmcache: %w; give another address", err)
	}
	return l, nil
}

// lmcacheService serves LMCache's clients. A nil one serves nobody.
type lmcacheService struct {
	server    *lmcache.Server
	grpc, zmq lmcacheCarrier
	sockets   []*socket
	listeners []lmcacheListener
}

type lmcacheListener struct {
	net.Listener
	carrier lmcacheCarrier
}

// lmcacheFile is where the protocol keeps what outlives the daemon.
func (c Config) lmcacheFile() string {
	return filepath.Join(cmp.Or(c.ShmDir, shmfile.DefaultDir), c.Name+shmfile.EnginesSuffix)
}

// keptQuotas returns the quotas by HTTP of a level that an earlier daemon has kept, if there are any with the
// configuration.
func (c Config) keptQuotas(level string) map[string]int64 {
	if len(c.LMCache) == 0 {
		return nil
	}
	return lmcache.KeptQuotas(c.lmcacheFile(), level)
}

// openLMCache opens what the configuration says.
func (r *runner) openLMCache(ctx context.Context) (_ *lmcacheService, err error) {
	if len(r.config.LMCache) == 0 {
		return nil, nil //nolint:nilnil // nothing is configured
	}
	segment := r.levels.memory.Segment()
	dir := cmp.Or(r.config.ShmDir, shmfile.DefaultDir)
	server, err := lmcache.NewServer(lmcache.Options{
		Registry: r.registry, Rooms: r.rooms, Store: r.levels.store, Memory: r.levels.memory, Segment: segment,
		Dir: dir, ChunkSize: r.config.LMCacheChunkSize,
		Engine: r.config.LMCacheEngine, Bodies: r.config.LMCacheBodies,
		State: r.config.lmcacheFile(), Logger: r.log,
	})
	if err != nil {
		return nil, err
	}
	s := &lmcacheService{server: server, grpc: lmcache.NewGRPC(server), zmq: lmcache.NewZMQ(server)}
	r.server.layouts = server.Layouts
	defer func() {
		if err != nil {
			s.shutdown(ctx) // nobody is served yet, so it does not wait
			err = errors.Join(err, s.close())
		}
	}()
	for _, text := range r.config.LMCache {
		a, err := parseLMCache(text)
		if err != nil {
			return nil, err
		}
		carrier := s.grpc
		if a.zmq {
			carrier = s.zmq
		}
		if a.network == "unix" {
			socket, err := makeSocket(ctx, a.address)
			if err != nil {
				return nil, fmt.Errorf("lmcache: %w", err)
			}
			s.sockets = append(s.sockets, socket)
			for _, l := range socket.listeners {
				s.listeners = append(s.listeners, lmcacheListener{l, carrier})
			}
			continue
		}
		l, err := a.listen(ctx)
		if err != nil {
			return nil, err
		}
		s.listeners = append(s.listeners, lmcacheListener{l, carrier})
	}
	return s, nil
}

// serve serves all listeners.
func (s *lmcacheService) serve(tasks *sync.WaitGroup, failed chan<- error) {
	if s == nil {
		return
	}
	for _, l := range s.listeners {
		tasks.Go(func() {
			if err := l.carrier.Serve(l.Listener); err != nil {
				failed <- fmt.Errorf("the listener at %s: %w", l.Addr(), err)
			}
		})
	}
}

// check reports that clients can't find a socket any more. A listener that fails ends the daemon, as ours do.
func (s *lmcacheService) check() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, socket := range s.sockets {
		if err := socket.check(); err != nil {
			errs = append(errs, fmt.Errorf("lmcache: %w", err))
		}
	}
	return errors.Join(errs...)
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
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, socket := range s.sockets {
		errs = append(errs, socket.close())
	}
	return errors.Join(errs...)
}
