package values

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// leaseTime is how long a lease of a Lease lasts after its last use.
const leaseTime = 5 * time.Minute

// Lease is a Holder with a lease of a tier.Store, for who serves a store without the daemon. The lease is open only
// while there is something in it, and ends by time if the process is killed.
type Lease struct {
	store *tier.Store
	id    string
	lease *tier.StoreLease // nil if there is none
	held  map[tier.Key]struct{}
}

var _ Holder = (*Lease)(nil)

// NewLease returns a Holder. id is the ID of its leases, unique in the store.
func NewLease(store *tier.Store, id string) *Lease {
	return &Lease{store: store, id: id, held: map[tier.Key]struct{}{}}
}

// open opens the lease, or makes it last.
func (l *Lease) open() error {
	lease, err := l.store.Lease(context.Background(), tier.LeaseOptions{
		ID: l.id, Owner: "values", Until: time.Now().Add(leaseTime),
	})
	if err == nil {
		l.lease = lease
	}
	return err
}

// note notes what is held now.
func (l *Lease) note(keys []tier.Key, placed []tier.Placed) {
	for i, p := range placed {
		if p.Err == nil {
			l.held[keys[i]] = struct{}{}
		}
	}
}

// drop notes what is not held any more, and releases a lease without anything.
func (l *Lease) drop(keys []tier.Key) {
	for _, k := range keys {
		delete(l.held, k)
	}
	if len(l.held) == 0 && l.lease != nil {
		l.lease.Release()
		l.lease = nil
	}
}

// Close ends the lease, with all that it holds.
func (l *Lease) Close() {
	clear(l.held)
	l.drop(nil)
}

// Pin implements Holder.
func (l *Lease) Pin(keys []tier.Key) []tier.Placed {
	if err := l.open(); err != nil {
		return slices.Repeat([]tier.Placed{{Err: err}}, len(keys))
	}
	placed := l.lease.Pin(keys)
	l.note(keys, placed)
	for _, p := range placed {
		if errors.Is(p.Err, tier.ErrPending) {
			return placed // the lease has interest in it, which ends with the lease
		}
	}
	l.drop(nil)
	return placed
}

// Unpin implements Holder.
func (l *Lease) Unpin(keys []tier.Key) {
	if l.lease != nil {
		l.lease.Unpin(keys)
	}
	l.drop(keys)
}

// Reserve implements Holder.
func (l *Lease) Reserve(objects []tier.Object) []tier.Placed {
	if err := l.open(); err != nil {
		return slices.Repeat([]tier.Placed{{Err: err}}, len(objects))
	}
	keys := make([]tier.Key, len(objects))
	for i := range objects {
		keys[i] = objects[i].Key
	}
	placed := l.lease.Reserve(objects)
	l.note(keys, placed)
	l.drop(nil)
	return placed
}

// Commit implements Holder.
func (l *Lease) Commit(keys []tier.Key) []error {
	if l.lease == nil {
		return slices.Repeat([]error{tier.ErrEnded}, len(keys))
	}
	return l.lease.Commit(keys)
}

// Abort implements Holder.
func (l *Lease) Abort(keys []tier.Key) []error {
	if l.lease == nil {
		return slices.Repeat([]error{tier.ErrEnded}, len(keys))
	}
	errs := l.lease.Abort(keys)
	l.drop(keys)
	return errs
}

// While implements Holder: nobody else has the lease.
func (l *Lease) While(do func()) error {
	do()
	return nil
}

// Leased are Values with a Lease of their own, for a connection to who serves a store without the daemon.
type Leased struct {
	*Values
	lease *Lease
}

// NewLeased returns Values of a connection. The ID of their lease begins with the protocol; patience is that of
// Options.
func NewLeased(store *tier.Store, protocol string, patience time.Duration) Leased {
	id := protocol + " " + rand.Text()
	lease := NewLease(store, id)
	return Leased{New(Options{Store: store, Holder: lease, ID: id, Patience: patience}), lease}
}

// Close ends the lease. Nothing stays pinned.
func (l Leased) Close() { l.lease.Close() }
