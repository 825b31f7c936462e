package promise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// writing is how long the reservations of a lease stay after its time, so that nobody gets the room while the
// client may still be writing to it: a client begins no write after that time, and none takes as long. It is
// counted by a clock that nobody sets, and that stands still while the machine sleeps.
const writing = 10 * time.Minute

// slack is how much longer than asked for a lease lasts, so that asking again soon changes nothing in the table.
const slack = time.Second

// lease is a lease of a session, as the book has it. Its fields are guarded by the lock of the session.
type lease struct {
	s        *session
	name     string
	t        *tier.StoreLease
	until    time.Time // what it pins ends then
	lapsed   bool      // until has passed, and reservations are left, for a while
	items    map[tier.Key]item
	reserved int   // of items
	bytes    int64 // of items
	wish     time.Time

	// Guarded by the lock of the book.
	in *due // where it is filed, nil if it is not
	at int  // its place there
}

// item is what a lease has of an object.
type item struct {
	size     int64
	reserved bool
}

// find returns a lease, nil if there is none now.
func (s *session) find(name string) *lease {
	l := s.leases[name]
	if l != nil && !l.lapsed && !s.book.now().Before(l.until) {
		ended := l.lapse()
		s.book.mu.Lock()
		s.book.counts.EndedByTime += uint64(ended)
		s.book.mu.Unlock()
		l = s.leases[name]
	}
	return l
}

// open returns a lease that lasts for at least d, within the limits; 0 is the ordinary time.
func (s *session) open(name string, d time.Duration) (*lease, error) {
	limits := s.book.Limits()
	until := s.book.clock().Add(limits.time(d))
	if l := s.find(name); l != nil {
		err := l.extend(until)
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, tier.ErrEnded):
			return nil, explain(err)
		}
		l.release() // the store's clock was ahead
	}
	if err := s.mayOpen(limits); err != nil {
		return nil, err
	}
	until = until.Add(slack)
	t, err := s.book.store.Lease(context.Background(), tier.LeaseOptions{ID: leaseID(s.id, name), Owner: s.owner, Until: until})
	if err != nil {
		return nil, explain(err)
	}
	failpoint.Hit("daemon.lease")
	return s.add(name, t, until), nil
}

// explain returns an error of the store about a lease as one of the book.
func explain(err error) error {
	if errors.Is(err, tier.ErrFull) {
		return fmt.Errorf("%w: the segment's table of leases is full; release some, or raise max-leases, for a new segment", ErrLimit)
	}
	for theirs, ours := range map[error]error{fs.ErrPermission: ErrOwner, fs.ErrClosed: ErrClosed} {
		if errors.Is(err, theirs) {
			return fmt.Errorf("%w: %w", ours, err)
		}
	}
	return err
}

func (s *session) mayOpen(limits Limits) error {
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	switch all, mine := int64(b.counts.Leases), int64(s.client.leases); {
	case !quarter(limits.Table).allows(mine, 1, limits.Table-all-1):
		return fmt.Errorf("%w: process %d has %d leases and others have %d, which leaves it no more; release some, or raise max-leases, for a new segment",
			ErrLimit, s.client.PID(), mine, all-mine)
	case len(s.leases) >= limits.Leases:
		return fmt.Errorf("%w: session %s has %d leases; release some, or raise max-session-leases", ErrLimit, s.id, len(s.leases))
	}
	return nil
}

// add adds a lease of the store that has nothing yet.
func (s *session) add(name string, t *tier.StoreLease, until time.Time) *lease {
	l := &lease{s: s, name: name, t: t, until: until, items: map[tier.Key]item{}}
	s.leases[name] = l
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	s.client.leases++
	b.counts.Leases++
	if s.waiting {
		b.counts.Waiting++
	}
	b.file(l, &b.due, until.Round(0))
	return l
}

// extend makes a lease last until a time, at least.
func (l *lease) extend(until time.Time) error {
	if !l.until.Before(until) && !l.lapsed {
		return nil
	}
	until = until.Add(slack)
	if err := l.t.SetUntil(until); err != nil {
		return err
	}
	l.until, l.lapsed = until, false
	b := l.s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	b.file(l, &b.due, until.Round(0))
	return nil
}

// revive returns a lease to go on with, for at least d, after the store said that the time of l had passed: its clock is ahead. Pins
// are gone. Reservations are not: the client may be writing.
func (s *session) revive(l *lease, d time.Duration) (*lease, error) {
	l.lapsed = true
	err := l.extend(s.book.clock().Add(s.book.Limits().time(d)))
	if errors.Is(err, tier.ErrEnded) { // it had none
		l.release()
		return s.open(l.name, d)
	}
	if err == nil {
		err = l.load()
	}
	if err != nil {
		return nil, explain(err)
	}
	return l, nil
}

// lapse takes its pins from a lease whose time has passed, or whose client does not come back, and ends it if
// it has no reservations. These end later. It returns how many leases have ended: one, or none.
func (l *lease) lapse() int {
	if l.reserved == 0 {
		l.release()
		return 1
	}
	var pinned []tier.Key
	for k, it := range l.items {
		if !it.reserved {
			pinned = append(pinned, k)
		}
	}
	l.t.Unpin(pinned)
	l.drop(pinned...)
	l.lapsed = true
	b := l.s.book
	now := b.clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.until.After(now) { // nobody came back, or the clock was set: the client believes in the time that it was given
		now = l.until
	}
	b.file(l, &b.writing, now.Add(writing))
	return 0
}

// release ends a lease with all it has.
func (l *lease) release() {
	l.t.Release()
	failpoint.Hit("daemon.released")
	s := l.s
	l.drop(slices.Collect(maps.Keys(l.items))...)
	delete(s.leases, l.name)
	b := s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	s.client.leases--
	b.counts.Leases--
	if s.waiting {
		b.counts.Waiting--
	}
	b.file(l, nil, time.Time{})
}

// settle ends a lease that has nothing, and waits for nothing, or for longer than its time.
func (l *lease) settle() {
	if len(l.items) == 0 && (l.lapsed || !l.s.book.now().Before(l.wish)) {
		l.release()
	}
}

// put notes that a lease has an object, which its client was charged for.
func (l *lease) put(k tier.Key, it item) {
	l.items[k] = it
	l.bytes += it.size
	if it.reserved {
		l.reserved++
	}
}

// atOnce is how many objects of a lease the lock of the book, or a turn, is held for at most.
const atOnce = 64

// drop notes that a lease does not have objects any more.
func (l *lease) drop(keys ...tier.Key) {
	for some := range slices.Chunk(keys, atOnce) {
		l.dropSome(some)
	}
}

func (l *lease) dropSome(keys []tier.Key) {
	b := l.s.book
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range keys {
		it, ok := l.items[k]
		if !ok {
			continue
		}
		delete(l.items, k)
		l.bytes -= it.size
		if it.reserved {
			l.reserved--
		}
		l.s.client.give(k, it.size)
	}
}

// load makes the book agree with the store about a lease: of an earlier process, or after an answer that should not be. What it has
// is charged, whatever the limits.
func (l *lease) load() error {
	st := l.t.State()
	keys := slices.Concat(st.Pinned, st.Reserved)
	placed := l.t.Held(keys)
	for _, p := range placed {
		if errors.Is(p.Err, fs.ErrClosed) {
			return p.Err
		}
	}
	l.drop(slices.Collect(maps.Keys(l.items))...)
	for i, p := range placed {
		if p.Err == nil || errors.Is(p.Err, tier.ErrPending) {
			l.s.book.mu.Lock()
			l.s.client.charge(keys[i], p.Object.Size)
			l.s.book.mu.Unlock()
			l.s.book.correct(keys[i], p.Object.Size)
			l.put(keys[i], item{size: p.Object.Size, reserved: p.Err != nil})
		}
	}
	return nil
}
