package promise

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/tier"
)

// Errors of a Book. The texts of what it returns say more.
var (
	// ErrOwner reports a session that is another process's.
	ErrOwner = errors.New("another process's session")
	// ErrLimit reports too many sessions or leases.
	ErrLimit = errors.New("too many")
	// ErrTaken reports that a connection has lost its session: to another connection, or since its process is dead.
	ErrTaken = errors.New("the session is not this connection's any more")
	// ErrClosed reports that the book is closed.
	ErrClosed = errors.New("the daemon ends")
)

// Options describe a Book.
type Options struct {
	Store  *tier.Store
	Memory tier.MemoryLevel // of the store
	Grace  time.Duration
	Limits Limits
	Now    func() time.Time // the clock of the memory level; nil is time.Now
	Logger *slog.Logger
}

// Limits are what a Book grants. A process may have a quarter of what there is in all, and the less, the more
// others have: see share.
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

func (l Limits) bytes() share { return share{l.Held, l.Memory} }

// time returns how long a lease lasts that is asked for d; 0 is the ordinary time.
func (l Limits) time(d time.Duration) time.Duration {
	if d == 0 {
		d = l.Ordinary
	}
	return min(d, l.Longest)
}

// Book has the promises of a daemon. Its methods may be called from any goroutine.
type Book struct {
	store  *tier.Store
	memory tier.MemoryLevel
	grace  time.Duration
	log    *slog.Logger
	clock  func() time.Time
	ended  loglimit.Limit // processes come and go as often as somebody likes

	mostWishes int // of a process

	wake       chan struct{} // the keeper of times has something new to wait for
	stop       chan struct{}
	background sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	limits   Limits
	clients  map[*Client]struct{}
	sessions map[string]*session
	deserted map[*session]time.Time  // nobody is there to say what becomes of them, until then
	due      due                     // leases by the end of their time, on the wall
	writing  due                     // leases whose time has passed, by the end of their reservations
	entered  int                     // connections of all clients
	items    int64                   // of all clients
	objects  map[tier.Key]heldObject // of all clients
	bytes    int64                   // of objects
	counts   Counts
}

// Counts are numbers of things in a Book.
type Counts struct {
	Processes, Sessions, Leases int // now
	Waiting                     int // of Leases: from before the start, and nobody has joined the session
	Held                        int64

	Recovered   int    // leases that were taken over at the start
	EndedByTime uint64 // leases whose time passed, or that were deserted
	EndedByExit uint64 // leases whose process ended
}

// Open opens the book of a store, with what an earlier book had.
func Open(o Options) (*Book, error) {
	b := &Book{
		store: o.Store, memory: o.Memory, mostWishes: mostWishes, grace: o.Grace, limits: o.Limits, log: o.Logger, clock: o.Now,
		ended: loglimit.Limit{Burst: 30}, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		clients: map[*Client]struct{}{}, sessions: map[string]*session{}, deserted: map[*session]time.Time{}, objects: map[tier.Key]heldObject{},
	}
	if most := quarter(o.Limits.Objects).limit; most > 0 {
		b.mostWishes = int(min(int64(b.mostWishes), most))
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.clock == nil {
		b.clock = time.Now
	}
	if err := b.recover(); err != nil {
		b.Close()
		return nil, err
	}
	b.background.Go(b.keepTime)
	return b, nil
}

// now is a time of the clock that is on the wall, as the memory level compares it.
func (b *Book) now() time.Time { return b.clock().Round(0) }

// SetLimits changes the limits, for what comes.
func (b *Book) SetLimits(l Limits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limits = l
}

// Limits returns the limits.
func (b *Book) Limits() Limits {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limits
}

// Close ends the book, and waits for what it does in the background. All leases stay as they are. Closing twice is fine.
func (b *Book) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.stop)
	}
	var sessions []*session
	for _, s := range b.sessions {
		sessions = append(sessions, s)
	}
	for c := range b.clients {
		c.process.Close()
	}
	b.mu.Unlock()
	for _, s := range sessions { // what is under way ends; nothing begins any more
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	b.background.Wait()
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

func closedAmong(placed []tier.Placed) error {
	for _, p := range placed {
		if err := closedIn([]error{p.Err}); p.Err != nil && err != nil {
			return err
		}
	}
	return nil
}
