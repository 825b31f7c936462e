package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/tier"
)

// Options describe a Registry.
type Options struct {
	Store  *tier.Store
	Memory tier.MemoryLevel // of the store
	Grace  time.Duration
	Limits Limits
	Now    func() time.Time // the clock of the memory level; nil is time.Now
	Logger *slog.Logger
}

// Limits are what a Registry grants. A process may have a quarter of what there is in all, and the less,
// the more others have: see share.
type Limits struct {
	Connections, Sessions int // of all processes; 0 is no limit
	Leases                int // of a session
	// Held are the bytes that the sessions of a process may have if others have nothing.
	Held              int64
	Longest, Ordinary time.Duration // of leases

	// What all processes may have: bytes, records of objects and of leases, and records of what leases have.
	// 0 is no limit.
	Memory, Objects, Table, Pins int64
}

// bytes is the share of the bytes of memory.
func (l Limits) bytes() share { return share{l.Held, l.Memory} }

// time returns how long a lease lasts that is asked for d; 0 is the ordinary time.
func (l Limits) time(d time.Duration) time.Duration {
	if d == 0 {
		d = l.Ordinary
	}
	return min(d, l.Longest)
}

// Registry has the sessions of a daemon. Its methods may be called from any goroutine.
type Registry struct {
	store  *tier.Store
	memory tier.MemoryLevel
	alone  bool // memory has no level below it
	grace  time.Duration
	log    *slog.Logger
	clock  func() time.Time

	// What others can cause as often as they like.
	ended, came, went, otherUser, cleared, clearing, uncleared loglimit.Limit

	begun   time.Time
	ending  context.Context // ends when the registry is closed
	end     context.CancelFunc
	clearer clearer

	maxInterest int // objects that a process may wait for

	wake       chan struct{} // the clock may have passed something
	stop       chan struct{}
	background sync.WaitGroup

	mu       sync.Mutex // guards what follows, and the fields of clients, sessions and leases
	closed   bool
	limits   Limits
	clients  map[*Client]struct{}
	sessions map[string]*session    // by protocol and ID, see sessionKey
	graces   map[*session]time.Time // sessions without a connection that are abandoned then
	entered  int                    // connections of all clients
	counts   Counts
	recent   recent
}

// Counts are numbers of things in a Registry.
type Counts struct {
	Processes, Sessions, Leases int   // now
	Waiting                     int   // of Leases: from before the start, and nobody has joined the session
	Held                        int64 // bytes that leases have pinned or reserved, each lease for itself

	Connected  int  // of Sessions: with a connection
	Clearing   bool // objects are being deleted, as a client wants
	Use        Use  // since the start
	Recent     Use  // lately: for as long as RecentTime
	RecentTime time.Duration

	Recovered   int    // leases that were taken over at the start
	EndedByTime uint64 // leases whose time passed, or that were abandoned
	EndedByExit uint64 // leases whose process ended
}

// Open opens the registry of a store, with what an earlier one had.
func Open(o Options) (*Registry, error) {
	r := &Registry{
		store: o.Store, memory: o.Memory, maxInterest: maxInterest, grace: o.Grace, limits: o.Limits, log: o.Logger,
		clock: o.Now, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		clients: map[*Client]struct{}{}, sessions: map[string]*session{}, graces: map[*session]time.Time{},
	}
	for _, l := range []*loglimit.Limit{&r.ended, &r.came, &r.went} { // engines start and end together
		l.Burst = 30
	}
	r.alone = len(o.Store.State().Levels) == 1
	r.begun = time.Now()
	r.ending, r.end = context.WithCancel(context.Background())
	if most := quarter(o.Limits.Objects).limit; most > 0 {
		r.maxInterest = int(min(int64(r.maxInterest), most))
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.clock == nil {
		r.clock = time.Now
	}
	if err := r.recover(); err != nil {
		r.Close()
		return nil, err
	}
	r.background.Go(r.keepTime)
	return r, nil
}

// now is a time of the clock that is on the wall.
func (r *Registry) now() time.Time { return r.clock().Round(0) }

// SetLimits changes the limits, for what comes.
func (r *Registry) SetLimits(l Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits = l
}

// Limits returns the limits.
func (r *Registry) Limits() Limits {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits
}

// Close ends the registry, and waits for requests that are under way, and for what it does in the
// background. All leases stay as they are. Closing twice is fine.
func (r *Registry) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.stop)
		r.end()
	}
	for c := range r.clients {
		c.process.Close()
	}
	r.mu.Unlock()
	for _, s := range r.all() { // no request begins any more
		s.request.Lock()
		s.request.Unlock() //nolint:staticcheck // the one that has it ends
	}
	r.background.Wait()
}

// closedIn returns ErrClosed if the store was closed under a call.
func closedIn(errs []error) error {
	for _, err := range errs {
		if errors.Is(err, fs.ErrClosed) {
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
	}
	return nil
}

// closedAmong is closedIn for what was pinned or reserved.
func closedAmong(placed []tier.Placed) error {
	for _, p := range placed {
		if p.Err != nil && errors.Is(p.Err, fs.ErrClosed) {
			return fmt.Errorf("%w: %w", ErrClosed, p.Err)
		}
	}
	return nil
}
