package objstore

import "time"

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// abortion is what became of the handles of aborted requests.
type abortion struct {
	fence uint64    // released when this fence passes
	until time.Time // or, if nobody is inside, then
	uses  int64
}

func (p *pool) ended(o *object, uses int64, aborted bool) {
	if aborted {
		p.quarantine(o, uses)
	}
}

func (p *pool) anonymous(o *object, uses int64) { p.quarantine(o, uses) }

func (p *pool) quarantine(o *object, uses int64) {
	if uses == 0 {
		return
	}
	until := p.quarantineEnd()
	// One for all that wait for the same fence, so that there are never many.
	if n := len(o.aborted); n > 0 && o.aborted[n-1].fence == p.fence {
		a := &o.aborted[n-1]
		a.uses += uses
		a.until = until
	} else {
		o.aborted = append(o.aborted, abortion{p.fence, until, uses})
	}
	p.quarantined[o] = struct{}{}
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

// over says whether an object has nothing in quarantine, or only what has served
// its time.
func (p *pool) over(o *object) bool {
	if len(o.aborted) == 0 {
		return true
	}
	missing := p.w.needed(o) - p.w.reads(o.address)
	return missing <= 0 && !p.w.opt.Rereads || p.expired(o) && (missing <= 0 || p.unread(o, missing))
}

// unread says whether the counts say that no reader has begun with the aborted
// handles: all of their reads are missing.
func (p *pool) unread(o *object, missing int64) bool {
	var uses int64
	for _, a := range o.aborted {
		uses += a.uses
	}
	return missing == uses*int64(p.w.readers)
}

func (p *pool) expired(o *object) bool {
	now := time.Now()
	for _, a := range o.aborted {
		if a.until.IsZero() || now.Before(a.until) {
			return false
		}
	}
	return true
}

// release ends the quarantine of an object.
func (p *pool) release(o *object) {
	o.aborted = nil
	delete(p.quarantined, o)
	p.changed(o)
}

// passed releases everything that was aborted before a fence.
func (p *pool) passed(fence uint64) {
	for o := range p.quarantined {
		n := 0
		for n < len(o.aborted) && o.aborted[n].fence <= fence {
			n++
		}
		if n == len(o.aborted) {
			p.release(o)
		} else {
			o.aborted = o.aborted[n:]
		}
	}
}
