package objstore

import "time"

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// What is in quarantine is in a list. Only the last abortion of an object counts:
// its fence is the latest, and so is its end by time. The list is in the order of
// the fences.

// quarantine puts an object into quarantine, or makes it stay longer.
func (p *pool) quarantine(o *object) {
	o.fence, o.until = p.fence, p.quarantineEnd()
	if o.quarantined == nil {
		o.quarantined = p.quarantined.PushBack(o)
	} else {
		p.skip(o)
		p.quarantined.MoveToBack(o.quarantined)
	}
	p.file(o, p.classOf(o))
}

// skip moves the place where looking goes on behind an object.
func (p *pool) skip(o *object) {
	if p.next == o.quarantined {
		p.next = o.quarantined.Next()
	}
}

// leave takes an object out of the list.
func (p *pool) leave(o *object) {
	p.skip(o)
	p.quarantined.Remove(o.quarantined)
	o.quarantined = nil
}

func (p *pool) quarantineEnd() time.Time {
	switch ttl := p.w.opt.QuarantineTTL; {
	case ttl < 0:
		return noEnd
	case ttl == 0:
		return time.Now().Add(DefaultQuarantineTTL)
	default:
		return time.Now().Add(ttl)
	}
}

// over says whether the quarantine of an object has served its time. By time alone
// it ends only if nobody has read the object since it was last idle: else some
// reader of an aborted handle may be inside, and the counts can't tell whose reads
// were whose. It is called in a guard.
func (p *pool) over(o *object) bool {
	reads := p.w.readsNow(o.address)
	all := reads >= p.w.needed(o)
	if all && !p.w.opt.Rereads {
		return true
	}
	return (all || reads == o.base) && !o.until.IsZero() && !time.Now().Before(o.until)
}

// release ends the quarantine of an object.
func (p *pool) release(o *object) {
	p.leave(o)
	_ = p.changed(o) // what the sidecar has is more cautious
}

// releaseIfOver ends the quarantine of an object that has served its time.
func (p *pool) releaseIfOver(o *object) {
	if o.quarantined == nil {
		return
	}
	_ = p.w.sv.guard(Handle{}, func() error {
		if p.over(o) {
			p.release(o)
		}
		return nil
	})
}

// Nobody is told when readers count. So whoever finds no room looks at objects in
// quarantine, in turn, and at so many at most that have to stay; one who waits
// comes back with a timer, and looks at more. What may go is paid for by having
// been aborted.
const (
	maxLooks     = 64
	maxPollLooks = 4096
)

// look releases the next object whose quarantine is over, if it is among the next
// few. It takes what it looked at in vain from looks. It is called in a guard.
func (p *pool) look(looks *int) bool {
	for ; *looks > 0 && p.quarantined.Len() > 0; *looks-- {
		e := p.next
		if e == nil {
			e = p.quarantined.Front()
		}
		p.next = e.Next()
		p.w.looked++
		if o := e.Value.(*object); p.over(o) {
			p.release(o)
			return true
		}
	}
	return false
}

// passed releases everything that was aborted before a fence.
func (p *pool) passed(fence uint64) {
	for e := p.quarantined.Front(); e != nil; e = p.quarantined.Front() {
		p.w.looked++
		o := e.Value.(*object)
		if o.fence > fence {
			return
		}
		p.release(o)
	}
}
