package objstore

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/pycompat"
)

// Lease keeps one object in the store, whatever its counts say, from the moment
// it is looked at until the request that needs it has ended. It issues the
// handles of that request, and takes them back if they were not sent. [Request]
// is a set of leases.
//
// A lease belongs to one request and is not for concurrent use; there may be any
// number of leases of an object. An open lease blocks Clear and Close, and with
// FIFO the freeing of the chunks behind its own.
type Lease struct {
	w      *Writer
	o      *object
	issued int   // handles
	uses   int64 // that they count
	sent   bool
	ended  bool
	resets int  // Writer.resets when it was sent
	holds  bool // the segment, for what Stored returned
}

// Lease takes a lease of the object under a key without issuing a use. It fails
// with [KeyNotFoundError].
func (w *Writer) Lease(key string) (*Lease, error) {
	if err := w.lockNew(); err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	o, err := w.find(key)
	if err != nil {
		return nil, err
	}
	return w.lease(o)
}

func (w *Writer) lease(o *object) (*Lease, error) {
	o.leases++
	w.leases++
	if err := w.life.changed(o); err != nil {
		o.leases--
		w.leases--
		_ = w.life.changed(o) // as it was
		return nil, err
	}
	return &Lease{w: w, o: o}, nil
}

// CommitLeased is Commit without a use: the object becomes visible under its
// key, leased to the caller. It is not for reservations of a [Request], which have
// a lease.
func (r *Reservation) CommitLeased() (*Lease, error) {
	sum := r.checksum()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.request != nil {
		return nil, fmt.Errorf("%w: the reservation of key %q belongs to request %s; use Commit", ErrInvalid, r.o.key, r.request.id)
	}
	if err := r.commit(sum); err != nil {
		return nil, err
	}
	l, err := r.w.lease(r.o)
	if err != nil {
		r.w.retire(r.o)
	}
	return l, err
}

// Key returns the object's key.
func (l *Lease) Key() string { return l.o.key }

// Generation returns the generation that the object is written in.
func (l *Lease) Generation() pycompat.Generation { return l.w.gen }

// Note returns PutOptions.Note of who put the object. It must not be written to.
func (l *Lease) Note() []byte { return l.o.note }

// Issue returns a handle for one more request, or one more place in it, and
// counts what every reader will count for it: one use; from 0.12 to 0.31 two for
// an object that was read before, since readers count the touch of these.
//
// It fails with [ErrFull] once an object was issued so often that the readers'
// count would overflow: send the value inline.
func (l *Lease) Issue() (Handle, error) { return l.IssueN(1) }

// IssueN is Issue for n children of a request, n > 0: their handles are the same,
// and each counts.
func (l *Lease) IssueN(n int) (Handle, error) {
	if err := l.w.lock(); err != nil {
		return Handle{}, err
	}
	defer l.w.mu.Unlock()
	return l.issue(n)
}

func (l *Lease) issue(n int) (Handle, error) {
	w, o := l.w, l.o
	switch {
	case l.over():
		return Handle{}, fmt.Errorf("%w: the lease of key %q ended already", ErrInvalid, o.key)
	case n < 1:
		return Handle{}, fmt.Errorf("%w: %d handles of key %q", ErrInvalid, n, o.key)
	case n > math.MaxInt32 || !w.canCount(o, 2*int64(n)):
		return Handle{}, fmt.Errorf("%w: key %q was issued %d times, and %d more would overflow the readers' count", ErrFull, o.key, o.uses, n)
	}
	uses := w.usesPerIssue(o.uses > 0) + int64(n-1)*w.usesPerIssue(true)
	o.uses += uses
	l.uses += uses
	if !l.sent {
		o.unsent += uses
	}
	l.issued += n
	if err := w.life.changed(o); err != nil { // before anyone has the handle
		o.uses -= uses
		l.uses -= uses
		if !l.sent {
			o.unsent -= uses
		}
		l.issued -= n
		return Handle{}, err
	}
	return w.handle(o), nil
}

// over says whether the lease has ended, by itself or with its readers.
func (l *Lease) over() bool { return l.ended || l.sent && l.resets != l.w.resets }

// Sent says that the handles were sent, or are about to be. It matters to
// ResetReaders and to Abort: what was not sent is read by nobody.
func (l *Lease) Sent() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.markSent()
}

func (l *Lease) markSent() {
	if l.ended || l.sent {
		return
	}
	l.sent, l.resets = true, l.w.resets
	l.o.unsent -= l.uses
	l.o.sent++
}

// TakeBack undoes every Issue of this lease: the handles were not sent, and
// never will be.
func (l *Lease) TakeBack() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.takeBack()
}

func (l *Lease) takeBack() {
	if l.over() || l.w.closed {
		return
	}
	if n := int64(l.issued); n > 0 {
		l.o.uses -= (n - 1) * l.w.usesPerIssue(true)
		l.o.uses -= l.w.usesPerIssue(l.o.uses > 1)
	}
	switch {
	case l.sent: // in vain
		l.sent = false
		l.o.sent--
	default:
		l.o.unsent -= l.uses
	}
	l.issued, l.uses = 0, 0
	_ = l.w.life.changed(l.o) // what the sidecar has is more cautious
}

// usesPerIssue is what the readers count for a delivered handle. again says that
// it is not the object's first.
func (w *Writer) usesPerIssue(again bool) int64 {
	if again && w.gen.Counting == pycompat.CountTouch {
		return 2
	}
	return 1
}

// Release ends the lease of a request that the engine reported as finished, or
// that never got a handle. The object can go: with FIFO once its uses are read,
// with Pool whatever was counted. Ending a lease twice is fine.
func (l *Lease) Release() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.end(false)
}

// Abort ends the lease of a request that was cancelled after it was sent, see
// [Request.Abort].
func (l *Lease) Abort() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.end(true)
}

func (l *Lease) end(aborted bool) {
	l.letGo()
	if l.over() || l.w.closed {
		l.ended = true
		return
	}
	if aborted && !l.sent { // nobody reads what was not sent
		l.takeBack()
		aborted = false
	}
	l.ended = true
	o := l.o
	o.leases--
	l.w.leases--
	if l.sent {
		o.sent--
	} else {
		o.unsent -= l.uses
	}
	if aborted && l.issued > 0 {
		l.w.life.quarantine(o)
	}
	_ = l.w.life.changed(o) // what the sidecar has is more cautious
	l.w.wakeShutdown()
}
