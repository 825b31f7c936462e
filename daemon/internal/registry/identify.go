package registry

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// Identify finds out which process made a connection, and returns its client, as Enter. It refuses
// processes of other users.
func (r *Registry) Identify(conn net.Conn) (*Client, error) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%w: the connection is a %T and no unix socket, so its process can't be identified",
			ErrOwner, conn)
	}
	p, user, err := process.Peer(raw)
	if err != nil {
		kind := ErrOwner
		// that passes
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
			kind = ErrLimit
		}
		return nil, fmt.Errorf("%w: the process of the connection can't be identified: %w", kind, err)
	}
	if own := os.Geteuid(); int(user) != own {
		p.Close()
		r.otherUser.Warn(r.log, "a client of another user was refused: run engines and daemon as one user", "user", user, "pid", p.ID().PID)
		return nil, fmt.Errorf("%w: you are user %d, and the daemon serves user %d only; run both as one user",
			ErrOwner, user, own)
	}
	return r.Enter(p)
}
