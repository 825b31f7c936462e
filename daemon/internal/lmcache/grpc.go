package lmcache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/daemon/internal/registry"
)

// GRPC serves the protocol by gRPC.
type GRPC struct {
	s      *Server
	server *grpc.Server
	conns  *conns
}

// maxMessage bounds a message: the bytes of a step of an engine that can't map the segment. More than it ends
// the engine.
const maxMessage = 1 << 30

// maxCalls bounds the calls of a connection, each of which may bring a message: more of them wait at the
// client. Calls take moments, but for those that wait for a status.
const maxCalls = 64

// handshake is how long a connection may say nothing at first.
const handshake = 5 * time.Second

// NewGRPC returns what serves s by gRPC.
func NewGRPC(s *Server) *GRPC {
	g := &GRPC{s: s, conns: &conns{open: map[net.Conn]struct{}{}}}
	g.server = grpc.NewServer(
		grpc.Creds(&identifier{s: s, conns: g.conns}), grpc.ConnectionTimeout(handshake),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		// Clients ping as they like: an end of the connection for that would be a failed call.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(maxCalls), grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))),
	)
	for name, methods := range services {
		desc := grpc.ServiceDesc{ServiceName: "lmcache.mp." + name, HandlerType: (*any)(nil)}
		for method, handle := range methods {
			m := grpc.MethodDesc{MethodName: method, Handler: handler(name, method, handle)}
			desc.Methods = append(desc.Methods, m)
		}
		g.server.RegisterService(&desc, g)
	}
	return g
}

// Serve answers the clients of a listener until Shutdown, which closes it; then it returns nil.
func (g *GRPC) Serve(l net.Listener) error { return g.server.Serve(l) }

// Shutdown lets calls that are under way end, until ctx ends, and closes listeners and connections.
func (g *GRPC) Shutdown(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		g.conns.close() // Stop waits for those that have said nothing yet
		g.server.Stop()
	})
	defer stop()
	g.server.GracefulStop()
}

// caller is who has made a call.
type caller struct {
	ctx     context.Context //nolint:containedctx // of the call
	conn    *connection
	id      string // of the client
	release release
}

// service has the methods of a service.
type service map[string]method

// method handles a call: it has a message of its own, and a function.
type method struct {
	request func() proto.Message
	handle  func(s *Server, c caller, q proto.Message) (proto.Message, error)
}

// on makes a method of a function on its own type of message.
func on[Q any, P interface {
	*Q
	proto.Message
}](handle func(s *Server, c caller, q P) (proto.Message, error)) method {
	return method{
		request: func() proto.Message { return P(new(Q)) },
		handle:  func(s *Server, c caller, q proto.Message) (proto.Message, error) { return handle(s, c, q.(P)) },
	}
}

// releaseOfService is the release that a client has who calls a service.
var releaseOfService = map[string]release{
	"ControllerService": since056, "ObservabilityService": since056, "DebugService": since056,
	"ManagementService": since057, "KVEventService": since057, "ExtensionService": since057,
}

// handler makes a gRPC handler of a method.
func handler(service, name string, m method) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		g := srv.(*GRPC)
		q := m.request()
		if err := decode(q); err != nil {
			return nil, err
		}
		c, err := callerOf(ctx)
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		c.release = releaseOfService[service]
		p, err := answer(g.s, name, m, c, q)
		if err != nil {
			g.s.refused(name, err)
			return nil, status.Error(codeOf(err), err.Error())
		}
		return p, nil
	}
}

// answer handles a call. A panic ends neither the daemon nor the engine.
func answer(s *Server, name string, m method, c caller, q proto.Message) (p proto.Message, err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		s.log.Error("a call of an engine panicked", "call", name, "panic", r, "stack", string(debug.Stack()))
		if p, err = nothing[name], nil; p == nil {
			err = errors.New("lmcache: the server has a bug, which its log describes")
		}
	}()
	return m.handle(s, c, q)
}

// nothing are the answers to calls whose error an engine does not survive, or takes for pending, when there
// is nothing to store, to load or to find.
var nothing = map[string]proto.Message{
	"QueryPrefetchStatus": &mp.QueryPrefetchStatusResponse{ChunkCount: new(int64)},
	"WaitPrefetchStatus":  &mp.WaitPrefetchStatusResponse{ChunkCount: new(int64)},
	"PrepareStore":        &mp.PrepareStoreResponse{EncodedContext: appendContext(nil, nil, true, true)},
	"CommitStore":         &mp.CommitStoreResponse{},
	"PrepareRetrieve":     &mp.PrepareRetrieveResponse{},
	"CommitRetrieve":      &mp.CommitRetrieveResponse{},
}

func codeOf(err error) codes.Code {
	if errors.Is(err, fs.ErrInvalid) {
		return codes.InvalidArgument
	}
	return codes.Unavailable
}

// idHeader has 16 bytes, which a client draws when it starts.
const idHeader = "lmcache-client-id-bin"

func callerOf(ctx context.Context) (caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return caller{}, errors.New("lmcache: the call has no peer")
	}
	conn, ok := p.AuthInfo.(*identified)
	if !ok {
		return caller{}, errors.New("lmcache: the connection is not identified")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	ids := md.Get(idHeader)
	if len(ids) != 1 || len(ids[0]) != 16 {
		return caller{}, fmt.Errorf("lmcache: the call has no metadata %s of 16 bytes, which LMCache 0.5.5 and later send", idHeader)
	}
	return caller{ctx: ctx, conn: conn.conn, id: hex.EncodeToString([]byte(ids[0]))}, nil
}

// services are what each service has.
var services = func() map[string]service {
	chunkSize := on(func(s *Server, c caller, _ *mp.GetChunkSizeRequest) (proto.Message, error) {
		s.note(c)
		return &mp.GetChunkSizeResponse{ChunkSize: int64(s.chunkSize())}, nil
	})
	experimental := on(func(s *Server, c caller, _ *mp.GetExperimentalRequest) (proto.Message, error) {
		s.note(c)
		return &mp.GetExperimentalResponse{}, nil
	})
	ping := on(func(s *Server, c caller, q *mp.PingRequest) (proto.Message, error) {
		s.note(c)
		return &mp.PingResponse{Ok: s.ping(q.InstanceId)}, nil
	})
	erase := on(func(s *Server, c caller, _ *mp.ClearRequest) (proto.Message, error) {
		return &mp.ClearResponse{}, s.clear(c)
	})
	noop := on(func(*Server, caller, *mp.NoopRequest) (proto.Message, error) {
		return &mp.NoopResponse{Message: "OK"}, nil
	})
	report := on(func(*Server, caller, *mp.ReportBlockAllocationRequest) (proto.Message, error) {
		return &mp.ReportBlockAllocationResponse{}, nil
	})
	return map[string]service{
		"ControllerService":    {"Clear": erase, "GetChunkSize": chunkSize, "GetExperimental": experimental, "Ping": ping},
		"ObservabilityService": {"ReportBlockAllocation": report},
		"DebugService":         {"Noop": noop},
		"ManagementService": {
			"Clear": erase, "GetChunkSize": chunkSize, "GetExperimental": experimental, "Ping": ping, "Noop": noop,
			"ReportBlockAllocation": report,
			"NegotiateChunkSize": on(func(s *Server, c caller, q *mp.NegotiateChunkSizeRequest) (proto.Message, error) {
				s.note(c)
				n, err := s.negotiateChunkSize(q.RequiredChunkAlignment)
				return &mp.NegotiateChunkSizeResponse{ChunkSize: int64(n)}, err
			}),
		},
		"LookupService": {
			"Lookup": on(func(s *Server, c caller, q *mp.LookupRequest) (proto.Message, error) {
				return &mp.LookupResponse{}, s.lookUp(c, q.GetKey())
			}),
			"QueryPrefetchStatus": on(func(s *Server, c caller, q *mp.QueryPrefetchStatusRequest) (proto.Message, error) {
				return &mp.QueryPrefetchStatusResponse{ChunkCount: s.status(c, q.RequestId)}, nil
			}),
			"WaitPrefetchStatus": on(func(s *Server, c caller, q *mp.WaitPrefetchStatusRequest) (proto.Message, error) {
				n := s.waitForStatus(c.ctx, c, q.RequestId, q.Timeout)
				return &mp.WaitPrefetchStatusResponse{ChunkCount: n}, nil
			}),
			"FreeLookupLocks": on(func(s *Server, c caller, q *mp.FreeLookupLocksRequest) (proto.Message, error) {
				return &mp.FreeLookupLocksResponse{}, s.freeLocks(c, q)
			}),
			"EndSession": on(func(s *Server, c caller, q *mp.EndSessionRequest) (proto.Message, error) {
				return &mp.EndSessionResponse{}, s.endSession(c, q.RequestId)
			}),
		},
		"EngineDrivenService": {
			"RegisterKvCacheEngineDrivenContext": on(func(s *Server, c caller, q *mp.RegisterKvCacheEngineDrivenContextRequest) (proto.Message, error) {
				name, size, err := s.register(c, q)
				return &mp.RegisterKvCacheEngineDrivenContextResponse{ShmName: name, PoolSize: size}, err
			}),
			"UnregisterKvCacheEngineDrivenContext": on(func(s *Server, _ caller, q *mp.UnregisterKvCacheEngineDrivenContextRequest) (proto.Message, error) {
				s.unregister(q.InstanceId)
				return &mp.UnregisterKvCacheEngineDrivenContextResponse{}, nil
			}),
			"PrepareStore": on(func(s *Server, c caller, q *mp.PrepareStoreRequest) (proto.Message, error) {
				return &mp.PrepareStoreResponse{EncodedContext: s.prepareStore(c, q)}, nil
			}),
			"CommitStore": on(func(s *Server, c caller, q *mp.CommitStoreRequest) (proto.Message, error) {
				return &mp.CommitStoreResponse{Success: s.commitStore(c, q)}, nil
			}),
			"PrepareRetrieve": on(func(s *Server, c caller, q *mp.PrepareRetrieveRequest) (proto.Message, error) {
				return s.prepareRetrieve(c, q), nil
			}),
			"CommitRetrieve": on(func(s *Server, c caller, q *mp.CommitRetrieveRequest) (proto.Message, error) {
				return &mp.CommitRetrieveResponse{Success: s.commitRetrieve(c, q)}, nil
			}),
		},
		"LMCacheDrivenService": {
			"RegisterKvCache": on(func(*Server, caller, *mp.RegisterKvCacheRequest) (proto.Message, error) {
				return nil, fmt.Errorf("lmcache: the engine asks that the server copies out of its GPU, which ringcache does not do; "+
					"set lmcache.mp.mp_transfer_mode to engine_driven in kv_connector_extra_config: %w", fs.ErrInvalid)
			}),
		},
	}
}()

// identifier identifies the process of each connection, in place of a handshake.
type identifier struct {
	s     *Server
	conns *conns
}

// conns are the open connections, also those of which gRPC knows nothing yet.
type conns struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// add adds a connection, if there may be one more.
func (c *conns) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.open[conn] = struct{}{}
	}
	return !c.closed
}

func (c *conns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// close closes all connections, also those that are still to come.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close() // its owner notices
	}
}

// identified is what gRPC knows of a connection.
type identified struct {
	credentials.CommonAuthInfo
	conn *connection
}

// AuthType implements credentials.AuthInfo.
func (*identified) AuthType() string { return "process" }

// ServerHandshake implements credentials.TransportCredentials.
func (i *identifier) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	all := i.s.o.Registry
	identify := all.Identify
	if raw.RemoteAddr().Network() != "unix" {
		identify = func(net.Conn) (*registry.Client, error) { return all.Enter(process.Unknown()) }
	}
	client, err := identify(raw)
	if err != nil {
		i.s.refused("connect", err)
		return nil, nil, err
	}
	if !i.conns.add(raw) {
		client.Leave()
		return nil, nil, net.ErrClosed
	}
	conn := &connection{client: client, process: client.Process()}
	info := &identified{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, conn: conn}
	return &watchedConn{Conn: raw, closed: func() {
		i.conns.remove(raw)
		i.s.closed(conn)
	}}, info, nil
}

// ClientHandshake implements credentials.TransportCredentials; there are no clients here.
func (*identifier) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.ErrUnsupported
}

// Info implements credentials.TransportCredentials.
func (*identifier) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "process"}
}

// Clone implements credentials.TransportCredentials.
func (i *identifier) Clone() credentials.TransportCredentials { return &identifier{i.s, i.conns} }

// OverrideServerName implements credentials.TransportCredentials.
func (*identifier) OverrideServerName(string) error { return nil }

// watchedConn is a connection whose end is noticed.
type watchedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.closed)
	return err
}
