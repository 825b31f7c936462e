package memory

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// Level is a tier.MemoryLevel in a shared segment.
type Level struct {
	o     Options
	log   *slog.Logger
	now   func() time.Time
	seg   *segment.Segment
	store *shmstore.Store
	gen   uint64

	// corrupt counts objects that were damaged when the segment was taken over.
	corrupt int64

	gate   sync.Mutex // guards closed, and the begin of calls
	closed bool
	calls  sync.WaitGroup
	ending sync.Once
	endErr error

	shortTerm sync.Pool // of *short
	shorts    atomic.Uint64

	noRoom atomic.Bool // as long as there is a caution

	begun     time.Time    // of elapsed
	next      atomic.Int64 // when pins or the caution end, in nanoseconds since 1970
	nextWrite atomic.Int64 // when reservations end, by elapsed

	mu          sync.Mutex // guards what follows, and leases
	leases      map[string]*lease
	untils      schedule // leases whose pins end, in nanoseconds since 1970
	writes      schedule // leases that have expired, and whose reservations end, by elapsed
	sweeps      []*lease // leases that have objects which they must not have any more
	sweeperRuns bool     // a goroutine lets go of these
	leased      leased
	table       *leasetable.Table
	serial      uint64
	caution     time.Time      // the table was damaged: nothing is stored, and nothing goes, before; zero if it was not
	fence       shmstore.Fence // held until then
	ended       bool           // the table and the store are closed
}

var _ tier.MemoryLevel = (*Level)(nil)

// Name implements tier.Level: "memory".
func (l *Level) Name() string { return "memory" }

// Segment implements tier.MemoryLevel.
func (l *Level) Segment() tier.Segment {
	t := l.table.Options()
	return tier.Segment{
		Name: l.o.Name, Size: l.o.Size + frontSize, Generation: l.gen,
		Objects: sidecar.Of(l.seg).Options().Objects, Leases: t.Leases - 1, Pins: t.Items, // one record of a lease is spare
	}
}

// SetQuotas takes the place of Options.Quotas and Options.Quota. A tenant that has more keeps it until it stores the next
// object.
func (l *Level) SetQuotas(quotas map[string]int64, each int64) { l.store.SetQuotas(quotas, each) }

// Prepare maps the pages of the segment, or places them, see package shmring/memory. It may take seconds, and
// the level can be used meanwhile.
func (l *Level) Prepare(ctx context.Context, o memory.Options) (memory.Report, error) {
	if err := l.enter(); err != nil {
		return memory.Report{}, err
	}
	defer l.calls.Done()
	return l.seg.Prepare(ctx, o)
}

// enter begins a call, which ends with calls.Done.
func (l *Level) enter() error {
	l.gate.Lock()
	if l.closed {
		l.gate.Unlock()
		return closedError(l.o.Name)
	}
	l.calls.Add(1)
	l.gate.Unlock()
	if l.isDue() {
		l.mu.Lock()
		l.expire()
		l.mu.Unlock()
	}
	return nil
}

// Close implements tier.Level. Everything stays for the next [Open], in this or another process: objects, leases,
// pins and reservations. Placed.Bytes of open leases stay mapped until these are released, or the process ends, but
// are another's from now on.
func (l *Level) Close() error { return l.end(func() error { return l.store.Yield() }) }

// Remove closes the level, and removes the segment with everything in it, whoever has leases. Clients that
// have it mapped keep their mappings. The name of the segment goes first: after a kill in between, the next Open makes
// a new segment in place of the files that are left, which Sweep of package segment removes, too. After Close it does
// nothing: the segment may be another level's.
func (l *Level) Remove() error {
	return l.end(func() error { return errors.Join(l.seg.Unlink(), l.store.Abandon()) })
}

func (l *Level) end(how func() error) error {
	l.gate.Lock()
	l.closed = true
	l.gate.Unlock()
	l.calls.Wait()
	l.ending.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended = true
		for _, x := range l.leases {
			if x.ended || x.size() == 0 { // an open one stays for the next process, and keeps no memory of this one
				x.endInStore()
			}
		}
		err := l.table.Close()
		l.endErr = errors.Join(err, how())
	})
	return l.endErr
}

// Stat implements tier.Level.
func (l *Level) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	if err := l.enter(); err != nil {
		return slices.Repeat([]tier.Found{{Err: err}}, len(keys))
	}
	defer l.calls.Done()
	found := make([]tier.Found, len(keys))
	for i, k := range keys {
		if found[i].Err = check(ctx, k); found[i].Err == nil {
			found[i].Object, found[i].Err = l.stat(k)
		}
	}
	return found
}

// check returns what is wrong with an element of a batch before anything is done.
func check(ctx context.Context, k tier.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return k.Validate()
}

func (l *Level) stat(k tier.Key) (tier.Object, error) {
	x, err := l.store.Find(keyText(k))
	if err != nil {
		return tier.Object{}, answer(k, err)
	}
	o, ok := describeAs(k, x)
	if !ok {
		return tier.Object{}, &objectError{key: k, kind: tier.ErrNotFound, cause: tier.ErrCorrupt}
	}
	return o, nil
}

// Delete implements tier.Level.
func (l *Level) Delete(ctx context.Context, keys []tier.Key) []error {
	if err := l.enter(); err != nil {
		return slices.Repeat([]error{err}, len(keys))
	}
	defer l.calls.Done()
	errs := make([]error, len(keys))
	for i, k := range keys {
		if errs[i] = check(ctx, k); errs[i] == nil {
			errs[i] = l.delete(k)
		}
	}
	return errs
}

func (l *Level) delete(k tier.Key) error {
	text := keyText(k)
	err := answer(k, l.store.Delete(text))
	pending := errors.Is(err, tier.ErrPending)
	if !pending && !errors.Is(err, tier.ErrInUse) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.isLeased(k) || l.cautious() && !pending:
		return &objectError{key: k, kind: tier.ErrInUse}
	case pending, !l.store.Remove(text): // a Put is writing it, or it has gone meanwhile
		return &objectError{key: k, kind: tier.ErrNotFound}
	}
	return nil // a Get is reading it, and it goes then
}

// List implements tier.Level. It lists what is there when the loop begins.
func (l *Level) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		all, err := l.list(ctx)
		for _, x := range all {
			o, ok := describe(x)
			if !ok || space != "" && o.Space != space {
				continue
			}
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(o, nil) {
				return
			}
		}
		if err != nil {
			yield(tier.Object{}, err)
		}
	}
}

func (l *Level) list(ctx context.Context) (all []*shmstore.Object, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	_, err = l.store.Inspect(func(x *shmstore.Object, s shmstore.ObjectState) {
		if s.Indexed {
			all = append(all, x)
		}
	})
	return all, err
}

// Usage implements tier.Level. Held are bytes of leases, of what is being written, and of the ancestors of both.
func (l *Level) Usage() tier.Usage {
	if l.enter() != nil {
		return tier.Usage{Objects: -1, Bytes: -1, Capacity: l.o.Size, Held: -1, Corrupt: l.corrupt}
	}
	defer l.calls.Done()
	s, err := l.store.Stats()
	if err != nil {
		return tier.Usage{Objects: -1, Bytes: -1, Capacity: l.o.Size, Held: -1, Corrupt: l.corrupt}
	}
	return tier.Usage{
		Objects: int64(s.Objects), Bytes: s.Used, Capacity: l.o.Size, Held: s.Reserved + s.Leased + s.Quarantined,
		Evicted: int64(s.Evicted), Corrupt: l.corrupt, Tenants: l.store.Tenants(),
	}
}

// never is when nothing ends by time.
const never = math.MaxInt64

// CheckStructure verifies everything that must hold between calls, for tests.
func (l *Level) CheckStructure() error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.calls.Done()
	return errors.Join(l.store.CheckStructure(), l.checkLeases())
}
