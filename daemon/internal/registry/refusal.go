package registry

import (
	"errors"
	"io/fs"

	"github.com/ringcache/ringcache/daemon/internal/process"
)

// Errors of a Registry, whose texts say more. KindOf returns what they mean to a client. What is refused
// of single objects has the errors of package tier.
var (
	// ErrOwner reports a client that may not be served, or a session that is another process's.
	ErrOwner = errors.New("another process's session")
	// ErrLimit reports too many connections, sessions, leases, or spaces to clear.
	ErrLimit = errors.New("too many")
	// ErrTaken reports that a connection has lost its session: to another connection, or since its
	// process is dead.
	ErrTaken = errors.New("the session is not this connection's any more")
	// ErrClosed reports that the registry is closed.
	ErrClosed = errors.New("the daemon ends")
)

// Kind is what a refusal means to a client. Each protocol has its own word for it.
type Kind int

// The kinds.
const (
	Internal   Kind = iota // what should not be
	Invalid                // the client asks for what can't be
	Permission             // the client may not have it, now or later
	Busy                   // others have it now, or the client itself has too much
	Taken                  // the client has to begin anew
	Closing                // the daemon ends
)

// KindOf returns the kind of a refusal.
func KindOf(err error) Kind {
	for _, k := range []struct {
		err  error
		kind Kind
	}{
		{ErrOwner, Permission}, {process.ErrDead, Permission}, {ErrLimit, Busy}, {ErrTaken, Taken},
		{ErrClosed, Closing}, {fs.ErrClosed, Closing}, {fs.ErrInvalid, Invalid},
	} {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	return Internal
}
