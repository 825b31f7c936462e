package shmstore

import (
	"container/list"
	"time"
)

// noEnd is no time at which a quarantine ends by itself.
var noEnd time.Time

// quarantined is the stay of an object in quarantine.
type quarantined struct {
	o     *Object
	fence uint64    // the one that ends it
	until time.Time // or then, if nobody is inside
}

// quarantine is what is in quarantine, in the order of the fences. Only the last abortion of an
// object counts: its fence is the latest, and so is its end by time.
type quarantine struct {
	objects list.List                 // of *quarantined
	places  map[*Object]*list.Element // in objects
	next    *list.Element             // where examining goes on, nil: at the front
	fence   uint64                    // the next one's number
}

// stay returns the stay of an object that is in quarantine.
func (q *quarantine) stay(o *Object) *quarantined { return q.places[o].Value.(*quarantined) }

// add puts an object into quarantine, or makes it stay longer.
func (q *quarantine) add(o *Object, until time.Time) {
	if !o.quarantined {
		o.quarantined = true
		q.places[o] = q.objects.PushBack(&quarantined{o: o})
	} else {
		q.skip(o)
		q.objects.MoveToBack(q.places[o])
	}
	x := q.stay(o)
	x.fence, x.until = q.fence, until
}

// remove takes an object out of quarantine.
func (q *quarantine) remove(o *Object) {
	q.skip(o)
	q.objects.Remove(q.places[o])
	delete(q.places, o)
	o.quarantined = false
}

// skip moves the place where examining goes on behind an object.
func (q *quarantine) skip(o *Object) {
	if q.next == q.places[o] {
		q.next = q.next.Next()
	}
}

// front returns the object with the earliest fence, nil if there is none.
func (q *quarantine) front() *Object {
	if e := q.objects.Front(); e != nil {
		return e.Value.(*quarantined).o
	}
	return nil
}

// after returns the object to examine next, of at least one.
func (q *quarantine) after() *Object {
	e := q.next
	if e == nil {
		e = q.objects.Front()
	}
	q.next = e.Next()
	return e.Value.(*quarantined).o
}

// len returns the number of objects in quarantine.
func (q *quarantine) len() int { return q.objects.Len() }

// quarantineFor puts an object into quarantine, or makes it stay longer.
func (l *lifetime) quarantineFor(o *Object) {
	l.quarantine.add(o, l.quarantineEnd())
	l.space.reclassify(o)
}

func (l *lifetime) quarantineEnd() time.Time {
	switch {
	case l.ttl < 0:
		return noEnd
	case l.ttl == 0:
		return time.Now().Add(defaultQuarantineTTL)
	default:
		return time.Now().Add(l.ttl)
	}
}

// quarantineOver reports whether an object may leave quarantine. By time alone it may
// only if nobody can be inside: else some reader of an aborted handle may be, and
// the owner's counts can't tell whose reads were whose. It is called in a guard.
func (l *lifetime) quarantineOver(o *Object) bool {
	if !l.owner.Unread(o, false) {
		return true
	}
	until := l.quarantine.stay(o).until
	return !until.IsZero() && !time.Now().Before(until) && !l.owner.Unread(o, true)
}

// release ends the quarantine of an object.
func (l *lifetime) release(o *Object) {
	l.quarantine.remove(o)
	_ = l.changed(o) // what the sidecar has is more cautious
}

// releaseIfOver ends the quarantine of an object that may leave it.
func (l *lifetime) releaseIfOver(o *Object) {
	if !o.quarantined {
		return
	}
	_ = l.durability.guard(func() error {
		if l.quarantineOver(o) {
			l.release(o)
		}
		return nil
	})
}

// Readers count without a word to the store. So whoever finds no room examines objects in
// quarantine, one after the other, and at most so many that have to stay; one who waits
// comes back with a timer, and examines more. What may go is paid for by having
// been aborted.
const (
	maxExamined     = 64
	maxPollExamined = 4096
)

// releaseNext releases the next object whose quarantine is over, if it is among the next
// few. It subtracts what it examined in vain from them. It is called in a guard.
func (l *lifetime) releaseNext(few *int) bool {
	for ; *few > 0 && l.quarantine.len() > 0; *few-- {
		l.examined++
		if o := l.quarantine.after(); l.quarantineOver(o) {
			l.release(o)
			return true
		}
	}
	return false
}

// releaseFew releases the objects whose quarantine is over, of the next few.
func (l *lifetime) releaseFew(few int) error {
	return l.durability.guard(func() error {
		for few := few; l.releaseNext(&few); {
		}
		return nil
	})
}

// newFence returns the number of the fence that ends every quarantine up to now.
func (l *lifetime) newFence() uint64 {
	l.quarantine.fence++
	return l.quarantine.fence - 1
}

// passFence releases what was aborted before a fence.
func (l *lifetime) passFence(n uint64) {
	_ = l.durability.guard(func() error {
		for o := l.quarantine.front(); o != nil && l.quarantine.stay(o).fence <= n; o = l.quarantine.front() {
			l.examined++
			l.release(o)
		}
		return nil
	})
}

// resetReaders ends what the readers of before had, and counts for so many new ones; 0 is as many as before.
func (l *lifetime) resetReaders(readers int) error {
	if readers == 0 {
		readers = l.readers
	}
	if err := l.durability.setReaders(readers); err != nil { // first: if it is gone, nothing is reset
		return err
	}
	l.readers = readers
	for _, r := range l.requests {
		if r.state == requestCommitted {
			r.setState(requestEnded)
			r.leases.Clear()
		}
	}
	for o := range l.visible() {
		o.leases -= o.sent
		l.leases -= int(o.sent)
		o.sent = 0
		if o.quarantined {
			l.quarantine.remove(o)
		}
	}
	l.owner.Reset(readers, l.visible())
	for o := range l.visible() { // which may drop retired ones
		_ = l.changed(o) // what the sidecar has is more cautious
	}
	return nil
}
