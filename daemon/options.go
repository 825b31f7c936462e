package daemon

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/tier"
)

// ServerOptions describe a Server. Store and Memory are needed; zero values of the rest work.
type ServerOptions struct {
	// Store has the objects. Memory is its memory level. Both stay open when the server ends: close the
	// store after it, and then the levels.
	Store  *tier.Store
	Memory tier.MemoryLevel
	// ShmDir is the directory of Memory's segment, /dev/shm if empty.
	ShmDir string
	// Grace is how long leases of the daemon before are kept for a client that has not come back. 0 is
	// 30 seconds.
	Grace  time.Duration
	Limits Limits
	// Version is the program's, for people: it is what clients are answered to Hello.
	Version string
	// Logger gets what operators should see; nil is silence. The server never waits for it: a goroutine hands
	// the records over, those that are too many at a time are dropped and counted, and Shutdown waits for the
	// last ones, for two seconds at most.
	Logger *slog.Logger

	// registry has the sessions of all protocols, of this one too, and rooms are what their requests take. A
	// server without them makes its own.
	registry *registry.Registry
	rooms    *fair.Rooms

	// For tests.
	now      func() time.Time // the clock of Memory; nil is time.Now
	patience patience         // zero is ordinaryPatience
}

// Limits are what a Server grants. They can be changed while it serves. A zero value is the default.
type Limits struct {
	// MaxConnections and MaxSessions are the most at a time, 1024 each. A process may have a quarter of them
	// if others have none, and the same part of what others leave. So it is with the memory level's records
	// of leases and objects.
	MaxConnections, MaxSessions int
	// MaxLeases is the most open leases of a session, 1024, and at most a quarter of those of the memory
	// level.
	MaxLeases int
	// MaxHeld is the most bytes that all sessions of a process have pinned and reserved if others have none,
	// half of the memory level; beside others it is the same part of what they leave. What two leases of a
	// process have counts twice.
	MaxHeld int64
	// MaxLease is the longest time of a lease, an hour; DefaultLease that of a request without one, 5
	// minutes. Both are rounded up to seconds.
	MaxLease, DefaultLease time.Duration
}

// Validate reports what is wrong with options, as an fs.ErrInvalid.
func (o ServerOptions) Validate() error {
	switch {
	case o.Store == nil || o.Memory == nil:
		return fmt.Errorf("daemon: a server needs a store and its memory level: %w", fs.ErrInvalid)
	case o.Grace < 0:
		return fmt.Errorf("daemon: the grace time is %v, want at least 0: %w", o.Grace, fs.ErrInvalid)
	}
	return o.Limits.Validate()
}

// Validate reports what is wrong with limits, as an fs.ErrInvalid.
func (l Limits) Validate() error {
	for name, n := range map[string]int64{
		"connections": int64(l.MaxConnections), "sessions": int64(l.MaxSessions),
		"leases of a session":        int64(l.MaxLeases),
		"bytes that a process holds": l.MaxHeld, "nanoseconds of a lease": int64(l.MaxLease),
		"nanoseconds of a lease by default": int64(l.DefaultLease),
	} {
		if n < 0 {
			return fmt.Errorf("daemon: the most %s are %d, want at least 0, which is the default: %w",
				name, n, fs.ErrInvalid)
		}
	}
	return nil
}

// filled returns limits without zero values.
func (l Limits) filled(m tier.MemoryLevel) Limits {
	def := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	def(&l.MaxConnections, 1024)
	def(&l.MaxSessions, 1024)
	def(&l.MaxLeases, 1024)
	if all := m.Segment().Leases; all > 0 {
		l.MaxLeases = min(l.MaxLeases, max(1, all/4))
	}
	if l.MaxHeld == 0 {
		l.MaxHeld = capacity(m) / 2
	}
	second := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
		*d = min(*d, maxLease)
		if rest := *d % time.Second; rest > 0 {
			*d += time.Second - rest
		}
	}
	second(&l.MaxLease, time.Hour)
	second(&l.DefaultLease, 5*time.Minute)
	return l
}

// maxLease is a time that fits the wire, and no clock overflows by it.
const maxLease = 365 * 24 * time.Hour

// capacity returns the bytes that a memory level can have.
func capacity(m tier.MemoryLevel) int64 {
	if n := m.Usage().Capacity; n > 0 {
		return n
	}
	return m.Segment().Size
}

// forAll returns the limits as the registry has them, for the clients of all protocols.
func (l Limits) forAll(m tier.MemoryLevel) registry.Limits {
	seg := m.Segment()
	return registry.Limits{
		Connections: l.MaxConnections, Sessions: l.MaxSessions, Leases: l.MaxLeases, Held: l.MaxHeld,
		Longest: l.MaxLease, Ordinary: l.DefaultLease,
		// Half of the pins are for what the store has of its own, such as what is still to be written to
		// lower levels.
		Memory: capacity(m), Objects: int64(seg.Objects), Table: int64(seg.Leases), Pins: int64(seg.Pins) / 2,
	}
}

// protocol is the name of the server's protocol in the registry, and in front of the IDs of its leases.
const protocol = "ringcache"

// openRegistry opens the registry of the sessions of a daemon, which takes over the leases that the
// daemon before had. Those of processes that are dead end at once; the others wait for their clients,
// each for one of the protocol that made it.
func openRegistry(o ServerOptions) (*registry.Registry, error) {
	grace := o.Grace
	if grace == 0 {
		grace = 30 * time.Second
	}
	return registry.Open(registry.Options{
		Store: o.Store, Memory: o.Memory, Grace: grace, Limits: o.Limits.filled(o.Memory).forAll(o.Memory), Now: o.now,
		Logger: o.Logger,
	})
}
