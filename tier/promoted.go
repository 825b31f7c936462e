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

type kept struct {
	users int // leases and calls that have not come for it yet
	since time.Time
}

func newPromoted(lease Lease) promoted { return promoted{lease, map[Key]*kept{}, new(atomic.Int64)} }

// keep holds an object for a number of users. With 0 it is let go of, unless others are waited for.
func (p *promoted) keep(k Key, users int) {
	if users > 0 && p.kept[k] == nil && p.lease.Pin([]Key{k})[0].Err == nil {
		p.kept[k] = &kept{since: time.Now()}
	}
	switch have := p.kept[k]; {
	case have != nil:
		have.users += users
		have.since = time.Now()
	default:
		p.lease.Unpin([]Key{k})
	}
	p.size.Store(int64(len(p.kept)))
}

// take notes that a user has come for objects.
func (p *promoted) take(keys []Key) {
	var gone []Key
	for _, k := range keys {
		if have := p.kept[k]; have != nil {
			if have.users--; have.users <= 0 {
				delete(p.kept, k)
				gone = append(gone, k)
			}
		}
	}
	p.letGo(gone)
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
