package tier

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
)

// Store is an ordered set of levels: one of memory, and lower ones. Its methods may be called from any
// goroutine.
//
// An object is looked for in the fastest level first. A level that is away is skipped, and asked
// again in the background until it answers: it costs what only it has, and nothing else. What is
// wanted in memory is brought there by a bounded number of workers, once for all who want it.
//
// A panic in a call of a level is an ErrUnavailable of that call, and is logged with its stack, once a minute
// at the most: no level ends the process. A panic in a goroutine of a level's own does.
//
// The store leaves its levels open when it is closed: whoever opened them closes them, after the store.
type Store struct {
	options  Options
	memory   MemoryLevel
	lower    []*lower
	counters *counters
	events   *events

	ctx    context.Context // of what is done in the background; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // goroutines of the store
	gate   gate           // calls of the store
	closed sync.Once

	// mu guards everything below, and orders what the store does with its own leases. Nothing
	// waits under it, and no level but memory is called.
	mu       sync.Mutex
	wake     *sync.Cond // for workers: something could be done now
	stopping bool
	flights  map[Key]*flight
	asked    map[string]map[Key]*flight // by lease; also ended ones whose failure the lease has not heard of
	untold   int                        // those
	queue    queue
	moving   moving // what is on the way up
	writing  moving // what is on the way down
	writers  int    // workers that write
	owed     owedSet
	promoted promoted
	missing  missing
	ghosts   ghosts
	deleting map[Key]int   // deletions that run; the key comes back by no other way than Put
	settled  chan struct{} // closed when the owed set gets smaller; nil if nobody waits
}

// Open opens a store over levels that are open. It takes over what an earlier store over the same memory
// still had to write.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Store{
		options:  o,
		gate:     newGate(),
		memory:   containMemory(o.Memory, o.Logger),
		flights:  map[Key]*flight{},
		asked:    map[string]map[Key]*flight{},
		deleting: map[Key]int{},
		moving:   newMoving(threeQuarters(o.MaxBytesInFlight), o.Quotas),
		writing:  newMoving(o.MaxBytesInFlight-threeQuarters(o.MaxBytesInFlight), nil),
		missing:  newMissing(o.NegativeTTL),
		ghosts:   newGhosts(),
	}
	s.wake = sync.NewCond(&s.mu)
	names := []string{s.memory.Name()}
	for i, l := range o.Lower {
		l.Level = contain(l.Level, o.Logger)
		s.lower = append(s.lower, &lower{Lower: l, index: i, name: l.Level.Name(), slots: make(chan struct{}, o.MaxCalls), wentLog: loglimit.Limit{Burst: 5}, backLog: loglimit.Limit{Burst: 5}})
		names = append(names, l.Level.Name())
	}
	s.counters = newCounters(names)
	if err := s.takeOver(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.events = newEvents(o.Events)
	for i := range o.MaxCalls {
		s.work.Go(func() { s.serve(i) })
	}
	s.work.Go(s.tend)
	return s, nil
}

// threeQuarters of n, of any n.
func threeQuarters(n int64) int64 { return n/4*3 + n%4*3/4 }

// takeOver opens the store's own leases, and gives up what the store before had reserved in them.
func (s *Store) takeOver(ctx context.Context) error {
	var leases [2]Lease
	for i, id := range []string{owedID, promotedID} {
		lease, err := s.memory.Lease(ctx, LeaseOptions{ID: id, Owner: ownerOfStore})
		if err != nil {
			return fmt.Errorf("tier: opening the lease %q: %w", id, err)
		}
		state := lease.State()
		lease.Abort(state.Reserved)
		if id == promotedID {
			lease.Unpin(state.Pinned)
		}
		leases[i] = lease
	}
	s.owed = newOwedSet(leases[0], s.options)
	s.promoted = newPromoted(leases[1])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oweAgain()
	return nil
}

// ownerOfStore is the owner of the leases that a store has for itself, and begins their IDs.
const ownerOfStore = "ringcache store"

// tend gives up what nobody has asked for lately.
func (s *Store) tend() {
	t := time.NewTicker(max(s.options.PromotedFor/2, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-t.C:
			s.mu.Lock()
			s.forgetAskers(now)
			s.promoted.turn(now, s.options.PromotedFor)
			s.missing.prune(now)
			s.mu.Unlock()
		}
	}
}

// Close ends the store and waits for its calls and workers. What is still to be written stays in
// the memory level, and the next store over it writes it: see [Store.Drain]. Closing twice is fine.
func (s *Store) Close() error {
	s.closed.Do(s.close)
	return nil
}

func (s *Store) close() {
	s.gate.shut.Store(true) // what a call waits for ends below
	s.mu.Lock()
	s.stopping = true
	s.endAll(fs.ErrClosed)
	s.wake.Broadcast()
	s.settle()
	s.mu.Unlock()
	s.cancel()
	s.gate.wait()
	s.work.Wait()
	s.events.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promoted.drop()
}
