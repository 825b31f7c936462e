package resp

import (
	"context"
	"io"
	"net"

	"github.com/ringcache/ringcache/internal/values"
	"github.com/ringcache/ringcache/tier"
)

// Store is where a connection of a Server gets and puts values. One goroutine at a time uses it.
type Store interface {
	// Get calls use with a value in memory, which is valid until use returns. Its error is that of use, or of tier.
	Get(ctx context.Context, k tier.Key, use func(o tier.Object, b []byte) error) error
	// Pin brings a value to memory, and pins it there until Unpin.
	Pin(ctx context.Context, k tier.Key) (tier.Placed, error)
	Unpin(k tier.Key)
	// Put stores a value, whose bytes are read from body, in place of another one under its key. It may
	// return before all of body was read.
	Put(ctx context.Context, o tier.Object, body io.Reader) error
	// Delete deletes a value from all levels.
	Delete(ctx context.Context, k tier.Key) error
	// Close ends the use. Nothing stays pinned.
	Close()
}

// Holder pins what EXISTS has affirmed, for the whole server. Its methods are those of a [tier.Lease]; one
// goroutine at a time calls them.
type Holder interface {
	Pin(keys []tier.Key) []tier.Placed
	Unpin(keys []tier.Key)
	Close()
}

// openOver opens a Store without a daemon.
func (s *Server) openOver(net.Conn, func()) (Store, error) {
	return values.NewLeased(s.o.Store, "resp", s.o.Patience), nil
}
