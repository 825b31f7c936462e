package daemon

import (
	"context"
	"errors"
	"net"

	"github.com/ringcache/ringcache/encoder/wire"
)

// Server serves the protocol of package encoder/wire on any number of listeners. Its methods may be called from any
// goroutine.
type Server struct{ o ServerOptions }

// NewServer takes over what the daemon before had promised, and returns a server. Leases of processes that are dead end at once; the
// others wait for their clients.
func NewServer(o ServerOptions) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Server{o: o}, nil
}

// Serve answers the clients of a listener, of a unix socket, until Shutdown, which closes it; then it returns nil. Clients of another
// user are refused.
func (s *Server) Serve(l net.Listener) error { return errors.ErrUnsupported }

// Shutdown ends the server: it closes the listeners, lets requests that are under way finish, and closes the connections. If ctx ends
// first, connections are closed at once, and the error is that of ctx. All leases stay as they are, for the next server.
func (s *Server) Shutdown(ctx context.Context) error { return nil }

// SetLimits changes the limits. What is beyond new ones already stays.
func (s *Server) SetLimits(l Limits) error { return l.Validate() }

// State reports what the daemon has and does now. It does no input or output.
func (s *Server) State() wire.State { return wire.State{} }

// Leases lists the open leases, by name.
func (s *Server) Leases() []wire.Lease { return nil }

// Counters reports what the server has done since its start, and has now.
func (s *Server) Counters() Counters { return Counters{} }
