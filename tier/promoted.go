package tier

import (
	"sync/atomic"
	"time"
)

// promotedID is the lease under which objects are brought. It is the same after a restart, so that nothing
// stays held.
const promotedID = "ringcache store: promoted"

// promoted is what was brought and is held for those who wanted it, until they have taken it or
// their time is over.
type promoted struct {
	lease Lease
	kept  map[Key]*kept
	size  *atomic.Int64 // of kept, to be read without the lock
}

// kept is for whom an object is held.
type kept struct {
	leases map[string]bool
	reads  int // calls of Get
	since  time.Time
}

func newPromoted(lease Lease) promoted { return promoted{lease, map[Key]*kept{}, new(atomic.Int64)} }

// keep holds the object of a flight, which is in memory, for those who wanted it. For nobody it is let go
// of, unless others are waited for.
func (p *promoted) keep(f *flight) {
	k := f.key
	if len(f.asked)+f.reads > 0 && p.kept[k] == nil && p.lease.Pin([]Key{k})[0].Err == nil {
		p.kept[k] = &kept{leases: map[string]bool{}}
	}
	have := p.kept[k]
	if have == nil {
		p.letGo([]Key{k})
		return
	}
	have.since = time.Now()
	have.reads += f.reads
	for lease := range f.asked {
		have.leases[lease] = true
	}
	p.size.Store(int64(len(p.kept)))
}

// take notes that a lease has objects, or that it wants them no more.
func (p *promoted) take(lease string, keys ...Key) {
	for _, k := range keys {
		if have := p.kept[k]; have != nil {
			delete(have.leases, lease)
			p.check(k, have)
		}
	}
}

// takeAll notes that a lease wants nothing any more.
func (p *promoted) takeAll(lease string) {
	for k := range p.kept {
		p.take(lease, k)
	}
}

// read notes that a call of Get has an object.
func (p *promoted) read(k Key) {
	if have := p.kept[k]; have != nil {
		have.reads = max(have.reads-1, 0)
		p.check(k, have)
	}
}

func (p *promoted) check(k Key, have *kept) {
	if have.reads == 0 && len(have.leases) == 0 {
		p.remove(k)
	}
}

// remove lets an object go, whoever wants it.
func (p *promoted) remove(k Key) {
	if p.kept[k] != nil {
		delete(p.kept, k)
		p.letGo([]Key{k})
	}
}

// turn lets go what nobody came for.
func (p *promoted) turn(now time.Time, limit time.Duration) {
	var gone []Key
	for k, have := range p.kept {
		if now.Sub(have.since) >= limit {
			delete(p.kept, k)
			gone = append(gone, k)
		}
	}
	p.letGo(gone)
}

func (p *promoted) letGo(gone []Key) {
	if len(gone) > 0 {
		p.lease.Unpin(gone)
		p.size.Store(int64(len(p.kept)))
	}
}

// drop lets everything go.
func (p *promoted) drop() {
	for k := range p.kept {
		p.remove(k)
	}
}
