package lmcache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// GRPC serves the protocol by gRPC.
type GRPC struct {
	s      *Server
	server *grpc.Server
	conns  *conns
}

// NewGRPC returns what serves s by gRPC. It has goroutines until Shutdown.
func NewGRPC(s *Server) *GRPC {
	g := &GRPC{s: s, conns: &conns{open: map[net.Conn]struct{}{}}}
	g.server = grpc.NewServer(
		grpc.Creds(&identifier{s: s, conns: g.conns}), grpc.ConnectionTimeout(handshake),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		// Clients ping as they like: an end of the connection for that would be a failed call.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(maxCalls),
		// A call may send so much before its message is read, see receive.
		grpc.StaticStreamWindowSize(smallMessage), grpc.StaticConnWindowSize(1<<20),
		// Goroutines that stay have a stack that is large enough: a new one copies its stack several times in a call.
		grpc.NumStreamWorkers(streamWorkers),
	)
	for service, names := range services {
		desc := grpc.ServiceDesc{ServiceName: "lmcache.mp." + service, HandlerType: (*any)(nil)}
		for _, name := range names {
			m := grpc.StreamDesc{StreamName: name, Handler: handler(service, name, methods[name]), ClientStreams: true}
			desc.Streams = append(desc.Streams, m)
		}
		if service == "ObservabilityService" {
			desc.Streams = append(desc.Streams, eventStream(service))
		}
		g.server.RegisterService(&desc, g)
	}
	const events = "KVEventService"
	g.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "lmcache.mp." + events, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{eventStream(events)},
	}, g)
	return g
}

// streamWorkers are goroutines for calls. A call that finds none of them free gets one of its own.
const streamWorkers = 16

// Serve answers the clients of a listener until Shutdown, which closes it; then it returns nil.
func (g *GRPC) Serve(l net.Listener) error {
	if err := g.server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // which it is if Shutdown was faster
		return err
	}
	return nil
}

// Shutdown lets calls that are under way end, until ctx ends, and closes listeners and connections.
func (g *GRPC) Shutdown(ctx context.Context) {
	g.s.events.close()
	stop := context.AfterFunc(ctx, func() {
		g.conns.close() // Stop waits for those that have said nothing yet
		g.server.Stop()
	})
	defer stop()
	g.server.GracefulStop()
}

// services are the services of gRPC with the methods that each has.
var services = map[string][]string{
	"ControllerService":    {"Clear", "GetChunkSize", "GetExperimental", "Ping"},
	"ObservabilityService": {"ReportBlockAllocation"},
	"DebugService":         {"Noop"},
	"ManagementService": {
		"Clear", "GetChunkSize", "GetExperimental", "NegotiateChunkSize", "Noop", "Ping", "ReportBlockAllocation",
	},
	"LookupService": {"EndSession", "FreeLookupLocks", "Lookup", "QueryPrefetchStatus", "WaitPrefetchStatus"},
	"EngineDrivenService": {
		"CommitRetrieve", "CommitStore", "PrepareRetrieve", "PrepareStore",
		"RegisterKvCacheEngineDrivenContext", "UnregisterKvCacheEngineDrivenContext",
	},
	"LMCacheDrivenService": {"RegisterKvCache"},
}

// releaseOfService is the release that a client has who calls a service.
var releaseOfService = map[string]release{
	"ControllerService": since056, "ObservabilityService": since056, "DebugService": since056,
	"ManagementService": since057, "KVEventService": since057, "ExtensionService": since057,
}

// handler makes a gRPC handler of a method. To gRPC it is a stream, of which a handler is called before the
// message is read.
func handler(service, name string, m method) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		g := srv.(*GRPC)
		c, err := callerOf(stream.Context())
		if err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		c.release = releaseOfService[service]
		c.room = newRoom(g.s, c)
		defer c.room.release()
		q := m.request()
		if err := receive(c, q); err != nil {
			return err
		}
		p, err := g.s.answer(name, m, c, q)
		if err != nil {
			return status.Error(codeOf(err), err.Error())
		}
		return stream.SendMsg(p)
	}
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
	c := caller{ctx: ctx, conn: conn.conn, id: hex.EncodeToString([]byte(ids[0]))}
	if len(md.Get("traceparent")) > 0 {
		c.trace = func(field string) string { return strings.Join(md.Get(field), ",") }
	}
	return c, nil
}

// identifier identifies the process of each connection, in place of a handshake.
type identifier struct {
	s     *Server
	conns *conns
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
	conn, err := i.s.identify(raw)
	if err != nil {
		return nil, nil, err
	}
	if !i.conns.add(raw) {
		i.s.closed(conn)
		return nil, nil, net.ErrClosed
	}
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
