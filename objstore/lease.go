package objstore

import (
	"fmt"

	"github.com/ringcache/ringcache/pycompat"
)

// Lease keeps one object in the store, whatever its counts say, from the moment
// it is looked at until the request that needs it has ended. It issues the
// handles of that request, and takes them back if they were not sent.
//
// A lease belongs to one request and is not for concurrent use; there may be any
// number of leases of an object. An open lease blocks Clear, Close, and the
// freeing of the chunks behind its own.
type Lease struct {
	w      *Writer
	o      *object
	issued int // handles
	ended  bool
}

// Lease takes a lease of the object under a key without issuing a use. It fails
// with [KeyNotFoundError].
func (w *Writer) Lease(key string) (*Lease, error) {
	if err := w.lock(); err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	o, err := w.find(key)
	if err != nil {
		return nil, err
	}
	return w.lease(o), nil
}

func (w *Writer) lease(o *object) *Lease {
	o.leases++
	w.leases++
	return &Lease{w: w, o: o}
}

// CommitLeased is Commit without a use: the object becomes visible under its
// key, leased to the caller.
func (r *Reservation) CommitLeased() (*Lease, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if err := r.commit(); err != nil {
		return nil, err
	}
	return r.w.lease(r.o), nil
}

// Key returns the object's key.
func (l *Lease) Key() string { return l.o.key }

// Attached returns what was given to [Reservation.Attach].
func (l *Lease) Attached() any {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.o.note
}

// Issue returns a handle for one more request, or one more place in it, and
// counts what every reader will count for it: one use; from 0.12 to 0.31 two for
// an object that was read before, since readers count the touch of these.
//
// It fails with [ErrFull] once an object was issued so often that the readers'
// count would overflow: send the value inline.
func (l *Lease) Issue() (Handle, error) {
	w := l.w
	if err := w.lock(); err != nil {
		return Handle{}, err
	}
	defer w.mu.Unlock()
	if l.ended {
		return Handle{}, fmt.Errorf("%w: the lease of key %q ended already", ErrInvalid, l.o.key)
	}
	uses := w.usesPerIssue(l.o.uses > 0)
	if !w.canCount(l.o, uses) {
		return Handle{}, fmt.Errorf("%w: key %q was issued %d times", ErrFull, l.o.key, l.o.uses)
	}
	l.o.uses += uses
	l.issued++
	return w.handle(l.o), nil
}

// TakeBack undoes every Issue of this lease: the handles were not sent, and
// never will be.
func (l *Lease) TakeBack() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.ended {
		return
	}
	for range l.issued {
		l.o.uses -= l.w.usesPerIssue(l.o.uses > 1)
	}
	l.issued = 0
}

// usesPerIssue is what the readers count for a delivered handle. again says that
// it is not the object's first.
func (w *Writer) usesPerIssue(again bool) int64 {
	if again && w.gen.Counting == pycompat.CountTouch {
		return 2
	}
	return 1
}

// Release ends the lease; the object can go once its uses are read. Releasing
// twice is fine.
func (l *Lease) Release() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.o.leases--
	l.w.leases--
}
