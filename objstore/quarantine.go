package objstore

import "time"

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// abortion is what became of the handles of aborted requests.
type abortion struct {
	fence uint64    // released when this fence passes
	until time.Time // or then, if nobody is inside
}

// maxAbortions is the most of one object.
const maxAbortions = 8

// quarantine adds an abortion: one for all that wait for the same fence, and few
// if fences are taken and never pass.
func (p *pool) quarantine(o *object) {
	p.quarantined[o] = struct{}{}
	a := abortion{p.fence, p.quarantineEnd()}
	if n := len(o.aborted); n > 0 && (o.aborted[n-1].fence == p.fence || n == maxAbortions) {
		o.aborted[n-1] = a // the later one is the more cautious
		return
	}
	o.aborted = append(o.aborted, a)
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
// its time. By time alone it ends only if nobody has read the object since it was
// last idle: else some reader of an aborted handle may be inside, and the counts
// can't tell whose reads were whose.
func (p *pool) over(o *object) bool {
	if len(o.aborted) == 0 {
		return true
	}
	reads := p.w.reads(o.address)
	all := reads >= p.w.needed(o)
	return all && !p.w.opt.Rereads || p.expired(o) && (all || reads == o.base)
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
	_ = p.changed(o) // what the sidecar has is more cautious
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
