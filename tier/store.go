package tier

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/internal/evict"
)

// Store is an ordered set of levels: one of memory, and lower ones. Its methods may be called from any
// goroutine.
//
// An object is looked for in the fastest level first. A level that is away is skipped, and asked
// again in the background until it answers: it costs what only it has, and nothing else. What is
// to be in memory is fetched by a bounded number of workers, once for all who ask for it.
//
// A panic in a call of a level is an ErrUnavailable of that call, and is logged with its stack, once a minute
// at the most: no level ends the process. A panic in a goroutine of a level's own does.
//
// The store leaves its levels open when it is closed: whoever opened them closes them, after the store.
//
// A Store has three parts, each with a lock of its own, over one pool of workers:
//
//   - fetcher (fetch.go) brings objects from lower levels into memory,
//   - writeBack (write_back.go) writes what is in memory to lower levels,
//   - health (health.go), one for each lower level, knows whether the level can be used.
//
// No two locks of fetcher and writeBack are held together, in any order. Under either of them, leaf locks may
// be taken: of a health, of the workers, of the negative cache, of the report, and those of the memory level.
// No leaf calls the store, but for the Account of a lease, which the memory level calls under its lock and which
// must not call the store either. No lower level is called under any lock.
type Store struct {
	*shared
	fetcher *fetcher
	writes  *writeBack
	closed  sync.Once
}

// shared is what the parts of a store have in common. It does not change after Open.
type shared struct {
	options Options
	memory  MemoryLevel
	lower   []*lower
	report  *report
	workers *workers
	life    *lifetime
	quotas  atomic.Pointer[evict.Quotas] // as SetQuotas has set them last
}

// Open opens a store over levels that are open. It takes over what an earlier store over the same memory
// still had to write.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	sh := newShared(o.withDefaults())
	pending, err := sh.ownLease(ctx, pendingID)
	if err != nil {
		return nil, err
	}
	promoted, err := sh.ownLease(ctx, promotedID)
	if err != nil {
		return nil, err
	}
	promoted.Unpin(promoted.State().Pinned)
	writes := newWriteBack(sh, pending)
	writes.resume()
	s := &Store{shared: sh, writes: writes, fetcher: newFetcher(sh, promoted, writes)}
	s.report.events.start()
	s.life.Go(s.fetcher.expire)
	for i := range sh.options.MaxCalls {
		s.life.Go(func() { s.workers.run(s.nextWork(i)) })
	}
	return s, nil
}

// newShared makes what the parts have in common, with levels whose panics are contained.
func newShared(o Options) *shared {
	sh := &shared{options: o, memory: containMemory(o.Memory, o.Logger), workers: newWorkers(), life: newLifetime()}
	sh.quotas.Store(&evict.Quotas{Of: o.Quotas, Each: o.Quota})
	names := []string{sh.memory.Name()}
	for _, l := range o.Lower {
		names = append(names, l.Level.Name())
	}
	sh.report = newReport(names, newEvents(o.Events))
	for i, l := range o.Lower {
		l.Level = contain(l.Level, o.Logger)
		sh.lower = append(sh.lower, newLower(l, i, sh.report, o, sh.life, sh.workers.signal))
	}
	return sh
}

// threeQuarters of n, of any n.
func threeQuarters(n int64) int64 { return n/4*3 + n%4*3/4 }

// storeOwner is the owner of the leases that a store has for itself, and begins their IDs.
const storeOwner = "ringcache store"

// ownLease opens a lease of the store itself, for write-back or a fetch: neither is a use of an object. What an
// earlier store had reserved in it is given up.
func (sh *shared) ownLease(ctx context.Context, id string) (Lease, error) {
	lease, err := sh.memory.Lease(ctx, LeaseOptions{ID: id, Owner: storeOwner, NoUse: true})
	if err != nil {
		return nil, fmt.Errorf("tier: opening the lease %q: %w", id, err)
	}
	lease.Abort(lease.State().Reserved)
	return lease, nil
}

// clientLeases returns the open leases without the store's own.
func (sh *shared) clientLeases() []LeaseState {
	var out []LeaseState
	for _, l := range sh.memory.Leases() {
		if l.Owner != storeOwner {
			out = append(out, l)
		}
	}
	return out
}

// levelsWith returns the levels that are written to with one of the policies.
func (sh *shared) levelsWith(policies ...Write) (set levelSet) {
	for _, l := range sh.lower {
		if slices.Contains(policies, l.Write) {
			set |= l.bit()
		}
	}
	return set
}

// nextWork returns where a worker gets its work. The first one prefers writes, so that a stream of reads does
// not keep them pending for ever.
func (s *Store) nextWork(worker int) func() func() {
	first, second := s.fetcher.nextWork, s.writes.nextWork
	if worker == 0 {
		first, second = second, first
	}
	return func() func() {
		if do := first(); do != nil {
			return do
		}
		return second()
	}
}

// SetQuotas takes the place of Options.Quotas and Options.Quota.
func (s *Store) SetQuotas(quotas map[string]int64, each int64) {
	s.quotas.Store(&evict.Quotas{Of: quotas, Each: each})
	s.workers.signal() // what waits for its quota may be within it now
}

// Close ends the store and waits for its calls and workers. What is still to be written stays in
// the memory level, and the next store over it writes what is pinned: see [Store.Drain]. Closing twice is fine.
func (s *Store) Close() error {
	s.closed.Do(s.close)
	return nil
}

// close ends the parts in this order: calls and waits end first, then workers and other goroutines, and last
// the pins of what was fetched, which nobody can ask for any more.
func (s *Store) close() {
	s.life.refuse()
	s.fetcher.stop() // what calls wait for ends
	s.writes.stop()
	s.workers.stop()
	s.life.cancel()
	s.life.running.Wait()
	s.report.events.close()
	s.fetcher.close()
}
