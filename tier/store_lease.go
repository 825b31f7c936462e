package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// StoreLease is a lease in the memory level of a store. It is a [Lease] whose Pin fetches what only lower
// levels have, and whose Commit writes to them. Neither waits for them: no method does input or output.
type StoreLease struct {
	Lease // of the memory level: for what the store has nothing to add to
	store *Store
	id    string
}

var _ Lease = (*StoreLease)(nil)

// Lease opens a lease, or returns the open one of the same ID. The store keeps the IDs that begin
// with "ringcache store" for itself.
func (s *Store) Lease(ctx context.Context, o LeaseOptions) (*StoreLease, error) {
	if !s.life.enter() {
		return nil, errClosedStore()
	}
	defer s.life.leave()
	if strings.HasPrefix(o.ID, storeOwner) || o.Owner == storeOwner {
		return nil, fmt.Errorf("tier: the lease %q of %q is the store's own: %w", o.ID, o.Owner, fs.ErrPermission)
	}
	lease, err := s.memory.Lease(ctx, o)
	if err != nil {
		return nil, err
	}
	return &StoreLease{lease, s, o.ID}, nil
}

// Leases lists the open leases, without the store's own.
func (s *Store) Leases() []LeaseState { return s.clientLeases() }

// Pin keeps objects in place, as [Lease.Pin]. The error of what is not in memory is ErrPending if lower
// levels are being asked for it: call Pin again, with the same lease, until the answer is another one. It is
// fetched as long as somebody has interest. The interest of a lease ends Options.PromotedFor after its last Pin,
// or with Unpin or Release. The other errors are ErrNotFound, with ErrUnavailable if a level could not be asked,
// and ErrFull and ErrTooLarge of what is there, but has no room in memory. ErrNotFound is also the answer about an
// object that a level has, if its parent was asked for in the same call and does not get into memory. Of what somebody is
// storing it is ErrPending with ErrReserved.
func (l *StoreLease) Pin(keys []Key) []Placed {
	s := l.store
	if !s.life.enter() {
		return repeat(len(keys), Placed{Err: errClosedStore()})
	}
	defer s.life.leave()
	placed := l.Lease.Pin(keys)
	if s.report.pins(placed) {
		s.fetcher.pinned(l.id, keys, placed)
	} else {
		s.fetcher.answer(l.id, keys, placed, false)
	}
	return placed
}

// PinPrefix is Pin for chains, whose keys are in order, parents first: what is behind the first miss is of no
// use, and is neither pinned nor fetched. The answer ends with that miss. What is there behind a pending
// object is pending, too, and is not pinned: a miss may be found in front of it.
func (l *StoreLease) PinPrefix(keys []Key) []Placed {
	s := l.store
	if !s.life.enter() {
		return repeat(len(keys), Placed{Err: errClosedStore()})
	}
	defer s.life.leave()
	// First what is there, so that no fetch of the rest evicts it: its children would be worthless.
	placed := l.Lease.PinPrefix(keys)
	n := len(placed)
	if n > 0 && placed[n-1].Err != nil {
		n--
	}
	s.fetcher.pinned(l.id, keys[:n], placed)
	if n < len(placed) && (errors.Is(placed[n].Err, ErrNotFound) || errors.Is(placed[n].Err, ErrPending)) {
		placed = append(placed[:n], l.fetchBehind(keys[n:])...)
	}
	s.report.pins(placed)
	return placed
}

// fetchBehind answers for what is behind the part of a prefix that is pinned, and fetches it.
func (l *StoreLease) fetchBehind(keys []Key) []Placed {
	s := l.store
	placed := make([]Placed, len(keys))
	for i, f := range s.memory.Stat(context.Background(), keys) {
		placed[i] = Placed{Object: f.Object, Err: f.Err}
	}
	placed = placed[:s.fetcher.answer(l.id, keys, placed, true)]
	for i := range placed {
		if placed[i].Err == nil {
			placed[i].Err = fmt.Errorf("tier: object %v is there, and was not when others in front of it were asked for: %w", keys[i], ErrPending)
		}
	}
	return placed
}

// InterestTime returns how long the interest of a lease lasts after a Pin: Options.PromotedFor.
func (s *Store) InterestTime() time.Duration { return s.options.PromotedFor }

// Unpin gives pins up, and the interest in what is pending.
func (l *StoreLease) Unpin(keys []Key) {
	l.Lease.Unpin(keys)
	for some := range slices.Chunk(keys, maxBatch) { // a lease may have very many
		l.store.fetcher.removeLease(l.id, some)
	}
}

// Reserve implements Lease. What is there already is written to the lower levels that lack it, in the
// background.
func (l *StoreLease) Reserve(objects []Object) []Placed {
	s := l.store
	if !s.life.enter() {
		return repeat(len(objects), Placed{Err: errClosedStore()})
	}
	defer s.life.leave()
	placed := l.Lease.Reserve(objects)
	for i := range placed {
		if errors.Is(placed[i].Err, ErrExists) {
			s.writes.addPresumed(objects[i])
		}
	}
	return placed
}

// Commit publishes reservations, as [Lease.Commit], and has them written to the lower levels, in the
// background. Beyond Options.MaxBacklog, or the tenant's quota, they are written if memory still has them when
// it is their turn. What is committed in the moment in which the process is killed is written by the next store,
// if a lease pins it then.
func (l *StoreLease) Commit(keys []Key) []error {
	s := l.store
	if !s.life.enter() {
		return repeat(len(keys), errClosedStore())
	}
	defer s.life.leave()
	errs := l.Lease.Commit(keys) // first: after a kill here, the next store finds the pins, and writes what they pin
	var stored []Object
	for i, found := range s.memory.Stat(context.Background(), keys) {
		if errs[i] == nil && found.Err == nil {
			s.fetcher.negative.stored(keys[i])
			stored = append(stored, found.Object)
		}
	}
	s.writes.add(s.levelsWith(Through, Back), stored...)
	return errs
}

// Release ends the lease, and the interest in what is pending.
func (l *StoreLease) Release() {
	l.Lease.Release()
	l.store.fetcher.removeLeaseOfAll(l.id)
}

// ReleaseSome is a part of [StoreLease.Release].
func (l *StoreLease) ReleaseSome() (more bool) {
	if more = l.Lease.ReleaseSome(); !more {
		l.store.fetcher.removeLeaseOfAll(l.id)
	}
	return more
}

// errClosedStore is the answer of every call after Close.
func errClosedStore() error { return fmt.Errorf("tier: the store: %w", fs.ErrClosed) }

// repeat returns n times the same answer, in place of those of a level.
func repeat[T any](n int, answer T) []T { return slices.Repeat([]T{answer}, n) }
