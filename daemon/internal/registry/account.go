package registry

import (
	"fmt"

	"github.com/ringcache/ringcache/tier"
)

// charged is what somebody is charged for, what two leases have twice.
type charged struct{ objects, bytes int64 }

func (c *charged) add(objects, bytes int64) {
	c.objects += objects
	c.bytes += bytes
}

// Charge implements tier.Account: a process gets no more objects than it may have beside others.
func (l *lease) Charge(c tier.Charge) error {
	r := l.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.Had && !r.mayCharge(l.s.client, c, l.again) {
		return fmt.Errorf("it is beyond what the process may have beside others; release some: %w", tier.ErrFull)
	}
	l.charge(1, c.Size)
	return nil
}

// mayCharge reports whether a client may have one more object. What several clients have takes room, and
// a record of an object, once. What a lease has again takes no more than a record of a pin.
func (r *Registry) mayCharge(c *Client, one tier.Charge, again bool) bool {
	l := r.limits
	if !quarter(l.Pins).allows(c.charged.objects, 1, l.Pins-one.Pins) {
		return false
	}
	return again || l.bytes().allows(c.charged.bytes, one.Size, l.Memory-one.Bytes) &&
		quarter(l.Objects).allows(c.charged.objects, 1, l.Objects-one.Objects)
}

// Credit implements tier.Account.
func (l *lease) Credit(size int64) {
	r := l.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	l.charge(-1, -size)
}

// charge charges the session and its client. The caller has the lock.
func (l *lease) charge(objects, bytes int64) {
	l.s.charged.add(objects, bytes)
	l.s.client.charged.add(objects, bytes)
	l.s.registry.counts.Held += bytes
}

// Expired implements tier.Account.
func (l *lease) Expired() {
	r := l.s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.EndedByTime++
	r.removeLease(l)
	r.removeEmpty(l.s)
}
