package tier

import (
	"sync/atomic"
	"time"
)

// promotedID is the ID of the lease under which objects are fetched. A store that takes over the memory level
// finds it by this ID, and gives up what it reserved and pinned.
const promotedID = "ringcache store: promoted"

// promoted pins what was fetched for those who had interest in it, until each of them has read or pinned the
// object, or Options.PromotedFor is over. The lock of the fetcher guards it.
type promoted struct {
	lease Lease
	pins  map[Key]*promotedPin
	size  *atomic.Int64 // of pins, to be read without the lock
}

// promotedPin is for whom an object is pinned.
type promotedPin struct {
	leases  map[string]bool
	readers int // calls of Store.Get
	since   time.Time
}

// newPromoted returns what pins nothing yet under a lease.
func newPromoted(lease Lease) promoted {
	return promoted{lease, map[Key]*promotedPin{}, new(atomic.Int64)}
}

// pin pins the object of a fetch, which is in memory, for those who have interest in it. Without interest the
// pin of Commit ends.
func (p *promoted) pin(f *fetch) {
	k := f.key
	if len(f.leases)+f.readers > 0 && p.pins[k] == nil && p.lease.Pin([]Key{k})[0].Err == nil {
		p.pins[k] = &promotedPin{leases: map[string]bool{}}
	}
	have := p.pins[k]
	if have == nil {
		p.lease.Unpin([]Key{k})
		return
	}
	have.since = time.Now()
	have.readers += f.readers
	for lease := range f.leases {
		have.leases[lease] = true
	}
	p.size.Store(int64(len(p.pins)))
}

// removeLease notes that a lease has pinned an object itself, or has no interest in it any more.
func (p *promoted) removeLease(lease string, k Key) {
	if have := p.pins[k]; have != nil {
		delete(have.leases, lease)
		p.unpinUnused(k, have)
	}
}

// removeLeaseOfAll notes that a lease has ended.
func (p *promoted) removeLeaseOfAll(lease string) {
	for k := range p.pins {
		p.removeLease(lease, k)
	}
}

// removeReader notes that a call of Get has read an object.
func (p *promoted) removeReader(k Key) {
	if have := p.pins[k]; have != nil {
		have.readers = max(have.readers-1, 0)
		p.unpinUnused(k, have)
	}
}

// unpinUnused ends a pin that is there for nobody any more.
func (p *promoted) unpinUnused(k Key, have *promotedPin) {
	if have.readers == 0 && len(have.leases) == 0 {
		p.unpin(k)
	}
}

// unpin ends a pin, whoever has interest.
func (p *promoted) unpin(k Key) {
	if p.pins[k] != nil {
		delete(p.pins, k)
		p.lease.Unpin([]Key{k})
		p.size.Store(int64(len(p.pins)))
	}
}

// expire ends the pins that nobody used within the limit.
func (p *promoted) expire(now time.Time, limit time.Duration) {
	for k, have := range p.pins {
		if now.Sub(have.since) >= limit {
			p.unpin(k)
		}
	}
}

// unpinAll ends all pins.
func (p *promoted) unpinAll() {
	for k := range p.pins {
		p.unpin(k)
	}
}
