package tiertest

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// leasing changes each lease that the level returns.
func leasing(change func(b *broken, l *mapLease, k *brokenLease)) func(b *broken) {
	return func(b *broken) {
		b.wrap = func(l tier.Lease) tier.Lease {
			k := &brokenLease{Lease: l}
			change(b, l.(*mapLease), k)
			return k
		}
	}
}

// afterPin changes each answer of Pin.
func afterPin(change func(p *tier.Placed)) func(b *broken) {
	return leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.pin = func(keys []tier.Key) []tier.Placed {
			placed := l.Pin(keys)
			for i := range placed {
				change(&placed[i])
			}
			return placed
		}
	})
}

// afterHeld changes each answer of Held.
func afterHeld(change func(p *tier.Placed)) func(b *broken) {
	return leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.held = func(keys []tier.Key) []tier.Placed {
			placed := l.Held(keys)
			for i := range placed {
				change(&placed[i])
			}
			return placed
		}
	})
}

// afterReserve changes each answer of Reserve.
func afterReserve(change func(b *broken, l *mapLease, p *tier.Placed)) func(b *broken) {
	return leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.reserve = func(objects []tier.Object) []tier.Placed {
			placed := l.Reserve(objects)
			for i := range placed {
				change(b, l, &placed[i])
			}
			return placed
		}
	})
}

// replaced gives another answer for an error.
func replaced(err, from, to error) error {
	if errors.Is(err, from) {
		return to
	}
	return err
}

// asked changes what leases are asked for.
func asked(change func(o *tier.LeaseOptions)) func(b *broken) {
	return func(b *broken) {
		b.lease = func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
			change(&o)
			return b.Map.Lease(ctx, o)
		}
	}
}

// brokenAccount is an account with a defect.
type brokenAccount struct {
	tier.Account
	charge  func(c tier.Charge) error
	credit  func(size int64)
	expired func()
}

func (a *brokenAccount) Charge(c tier.Charge) error {
	if a.charge != nil {
		return a.charge(c)
	}
	return a.Account.Charge(c)
}

func (a *brokenAccount) Credit(size int64) {
	if a.credit != nil {
		a.credit(size)
		return
	}
	a.Account.Credit(size)
}

func (a *brokenAccount) Expired() {
	if a.expired != nil {
		a.expired()
		return
	}
	a.Account.Expired()
}

// accounting changes the accounts of leases.
func accounting(change func(a tier.Account) tier.Account) func(b *broken) {
	return asked(func(o *tier.LeaseOptions) {
		if o.Account != nil {
			o.Account = change(o.Account)
		}
	})
}

var leaseDefects = []defect{
	{"generation 0", "segment", func(b *broken) {
		b.segment = func() tier.Segment { return tier.Segment{Size: 1 << 40} }
	}},
	{"the segment changes", "segment", func(b *broken) {
		b.segment = func() tier.Segment { return tier.Segment{Size: 1 << 40, Generation: b.next} }
	}},

	{"an empty ID is fine", "lease options", asked(func(o *tier.LeaseOptions) {
		if o.ID == "" {
			o.ID = "none"
		}
	})},
	{"a long ID is cut", "lease options", asked(func(o *tier.LeaseOptions) { o.ID = o.ID[:min(len(o.ID), 255)] })},
	{"an ID is a file name", "lease options", asked(func(o *tier.LeaseOptions) {
		o.ID = strings.ReplaceAll(o.ID, "/", "_")
	})},
	{"owners are not compared", "lease options", func(b *broken) {
		owners := map[string]string{}
		asked(func(o *tier.LeaseOptions) {
			if _, ok := owners[o.ID]; !ok {
				owners[o.ID] = o.Owner
			}
			o.Owner = owners[o.ID]
		})(b)
	}},
	{"no owner is any owner", "lease options", func(b *broken) {
		owners := map[string]string{}
		asked(func(o *tier.LeaseOptions) {
			if o.Owner == "" && owners[o.ID] != "" {
				o.Owner = owners[o.ID]
			}
			owners[o.ID] = o.Owner
		})(b)
	}},
	{"Lease ignores the context", "lease options", func(b *broken) {
		b.lease = func(_ context.Context, o tier.LeaseOptions) (tier.Lease, error) { return b.Map.Lease(background, o) }
	}},
	{"Lease forgets the owner", "lease options", asked(func(o *tier.LeaseOptions) { o.Owner = "" })},

	{"the same ID is a new lease", "same lease", func(b *broken) {
		b.lease = func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
			b.mu.Lock()
			delete(b.Map.leases, o.ID)
			b.mu.Unlock()
			return b.Map.Lease(ctx, o)
		}
	}},
	{"the same ID ends the old lease", "same lease", func(b *broken) {
		b.lease = func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
			if l, err := b.Map.Lease(ctx, o); err == nil {
				l.Release()
			}
			return b.Map.Lease(ctx, o)
		}
	}},
	{"the earlier time counts", "same lease", func(b *broken) {
		b.lease = func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
			l, err := b.Map.Lease(ctx, o)
			if err == nil && !o.Until.IsZero() {
				err = l.SetUntil(o.Until)
			}
			return l, err
		}
	}},
	{"never is the earliest time", "same lease", func(b *broken) {
		b.lease = func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
			if o.Until.IsZero() {
				for _, s := range b.Map.Leases() {
					if s.ID == o.ID {
						o.Until = s.Until
					}
				}
			}
			return b.Map.Lease(ctx, o)
		}
	}},

	{"Pin answers in another order", "pins", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.pin = func(keys []tier.Key) []tier.Placed {
			placed := l.Pin(keys)
			slices.Reverse(placed)
			return placed
		}
	})},
	{"Delete ignores leases", "pins", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys)
			b.mu.Lock()
			defer b.mu.Unlock()
			for i, k := range keys {
				if x := b.objects[k]; x != nil && x.state == there && errors.Is(errs[i], tier.ErrInUse) {
					b.remove(x)
					errs[i] = nil
				}
			}
			return errs
		}
	}},
	{"Delete of what is pinned is a miss", "pins", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys)
			for i := range errs {
				errs[i] = replaced(errs[i], tier.ErrInUse, tier.ErrNotFound)
			}
			return errs
		}
	}},
	{"pins are counted", "pins", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		n := map[tier.Key]int{}
		k.pin = func(keys []tier.Key) []tier.Placed {
			for _, key := range keys {
				n[key]++
			}
			return l.Pin(keys)
		}
		k.unpin = func(keys []tier.Key) {
			for _, key := range keys {
				if n[key]--; n[key] <= 0 {
					l.Unpin([]tier.Key{key})
				}
			}
		}
	})},
	{"an absent key ends a batch of Unpin", "pins", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.unpin = func(keys []tier.Key) {
			for _, key := range keys {
				if b.Map.Stat(background, []tier.Key{key})[0].Err != nil {
					return
				}
				l.Unpin([]tier.Key{key})
			}
		}
	})},
	{"Unpin gives one up", "pins", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.unpin = func(keys []tier.Key) { l.Unpin(keys[:1]) }
	})},
	{"Pin of an invalid key is a miss", "pins", afterPin(func(p *tier.Placed) {
		p.Err = replaced(p.Err, fs.ErrInvalid, tier.ErrNotFound)
	})},
	{"Pin forgets the description", "pins", afterPin(func(p *tier.Placed) { p.Object.Note = nil })},
	{"an object moves when it is pinned again", "pins", func(b *broken) {
		n := uint64(0)
		afterPin(func(p *tier.Placed) {
			n += 8
			p.Offset += n
		})(b)
	}},
	{"Pin returns a copy of less", "pins", afterPin(func(p *tier.Placed) { p.Bytes = p.Bytes[:len(p.Bytes)/2] })},
	{"pins are not listed", "pins", func(b *broken) {
		b.leases = func() []tier.LeaseState {
			states := b.Map.Leases()
			for i := range states {
				states[i].Pinned = nil
			}
			return states
		}
	}},
	{"pins are no held bytes", "pins", counted(func(u *tier.Usage) { u.Held = 0 })},

	{"pins of two leases are counted twice", "two owners", func(b *broken) {
		b.usage = func() tier.Usage {
			u := b.Map.Usage()
			u.Held = 0
			for _, s := range b.Map.Leases() {
				u.Held += s.Bytes
			}
			u.Bytes = max(u.Bytes, u.Held)
			return u
		}
	}},
	{"Unpin ends the pins of all leases", "two owners", leasing(func(b *broken, _ *mapLease, k *brokenLease) {
		k.unpin = func(keys []tier.Key) {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, l := range b.Map.leases {
				for _, key := range keys {
					l.unpin(key)
				}
			}
		}
	})},
	{"Release ends the pins of all leases", "two owners", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.release = func() {
			b.mu.Lock()
			for _, l := range b.Map.leases {
				l.unpinAll()
			}
			b.mu.Unlock()
			l.Release()
		}
	})},

	{"what is reserved is there", "reservations", afterReserve(func(b *broken, l *mapLease, p *tier.Placed) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if x := b.objects[p.Object.Key]; x != nil {
			x.state = there
		}
	})},
	{"what is reserved is a miss", "reservations", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			for i := range found {
				found[i].Err = replaced(found[i].Err, tier.ErrPending, tier.ErrNotFound)
			}
			return found
		}
	}},
	{"Get of what is reserved is a miss", "reservations", afterGet(func(g *tier.Get) {
		g.Err = replaced(g.Err, tier.ErrPending, tier.ErrNotFound)
	})},
	{"what is reserved is listed", "reservations", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(ctx, space) {
					if !yield(o, err) {
						return
					}
				}
				for _, s := range b.Map.Leases() {
					for _, k := range s.Reserved {
						if !yield(tier.Object{Key: k}, nil) {
							return
						}
					}
				}
			}
		}
	}},
	{"what is reserved is counted as an object", "reservations", func(b *broken) {
		b.usage = func() tier.Usage {
			u := b.Map.Usage()
			for _, s := range b.Map.Leases() {
				u.Objects += int64(len(s.Reserved))
			}
			return u
		}
	}},
	{"Put takes what is reserved", "reservations", failOn(tier.ErrPending, nil)},
	{"Reserve of what is there is pending", "reservations", afterReserve(func(_ *broken, _ *mapLease, p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrExists, tier.ErrPending)
	})},
	{"Reserve of what is reserved exists", "reservations", afterReserve(func(_ *broken, _ *mapLease, p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrPending, tier.ErrExists)
	})},
	{"Pin of what is reserved is a miss", "reservations", afterPin(func(p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrPending, tier.ErrNotFound)
	})},
	{"any lease may commit", "reservations", leasing(func(b *broken, _ *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := make([]error, len(keys))
			for i, key := range keys {
				errs[i] = tier.ErrNotFound
				b.mu.Lock()
				x := b.objects[key]
				b.mu.Unlock()
				if x != nil && x.owner != nil {
					errs[i] = x.owner.Commit([]tier.Key{key})[0]
				}
			}
			return errs
		}
	})},
	{"Unpin gives reservations up", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.unpin = func(keys []tier.Key) {
			l.Abort(keys)
			l.Unpin(keys)
		}
	})},
	{"Commit does not pin", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := l.Commit(keys)
			l.Unpin(keys)
			return errs
		}
	})},
	{"Commit of what is not reserved succeeds", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := l.Commit(keys)
			for i := range errs {
				errs[i] = replaced(errs[i], tier.ErrNotFound, nil)
			}
			return errs
		}
	})},
	{"Commit commits the first", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := make([]error, len(keys))
			for i := range keys {
				if errs[i] = l.Commit(keys[i : i+1])[0]; errs[i] != nil {
					break
				}
			}
			return errs
		}
	})},
	{"Commit commits everything", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := l.Commit(keys)
			if !slices.ContainsFunc(errs, func(err error) bool { return err == nil }) {
				return errs
			}
			l.Commit(l.State().Reserved)
			return errs
		}
	})},
	{"Commit forgets the description", "reservations", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			b.mu.Lock()
			for _, x := range l.reserved {
				x.Note = nil
			}
			b.mu.Unlock()
			return l.Commit(keys)
		}
	})},
	{"Commit moves the object", "reservations", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			b.mu.Lock()
			for _, x := range l.reserved {
				x.offset += 4096
			}
			b.mu.Unlock()
			return l.Commit(keys)
		}
	})},

	{"an invalid object is reserved", "reserve refused", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.reserve = func(objects []tier.Object) []tier.Placed {
			objects = slices.Clone(objects)
			for i := range objects {
				objects[i].Cost = max(objects[i].Cost, 0)
			}
			return l.Reserve(objects)
		}
	})},
	{"a refused element ends a batch of Reserve", "reserve refused",
		leasing(func(_ *broken, l *mapLease, k *brokenLease) {
			k.reserve = func(objects []tier.Object) []tier.Placed {
				placed := make([]tier.Placed, len(objects))
				var failed error
				for i := range objects {
					if placed[i].Err = failed; failed == nil {
						placed[i] = l.Reserve(objects[i : i+1])[0]
						failed = placed[i].Err
					}
				}
				return placed
			}
		})},

	{"Abort leaves the bytes", "aborted", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.abort = func(keys []tier.Key) []error {
			errs := l.Abort(keys)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.bytes++
			return errs
		}
	})},
	{"Abort publishes", "aborted", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.abort = func(keys []tier.Key) []error {
			errs := l.Commit(keys)
			l.Unpin(keys)
			return errs
		}
	})},
	{"Abort of what is not reserved succeeds", "aborted", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.abort = func(keys []tier.Key) []error {
			l.Abort(keys)
			return make([]error, len(keys))
		}
	})},
	{"Abort gives everything up", "aborted", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.abort = func(keys []tier.Key) []error {
			errs := l.Abort(keys)
			l.Abort(l.State().Reserved)
			return errs
		}
	})},

	{"Release leaves reservations", "released", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.release = func() {
			b.mu.Lock()
			l.reserved = nil
			b.mu.Unlock()
			l.Release()
		}
	})},
	{"Release leaves pins", "released", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.release = func() {
			b.mu.Lock()
			l.pinned = nil
			b.mu.Unlock()
			l.Release()
		}
	})},
	{"Release publishes what is reserved", "released", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.release = func() {
			l.Commit(l.State().Reserved)
			l.Release()
		}
	})},
	{"releasing twice panics", "released", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		done := make(chan struct{})
		k.release = func() {
			close(done)
			l.Release()
		}
	})},
	{"a lease that has ended goes on", "released", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.reserve = func(objects []tier.Object) []tier.Placed {
			if again, err := b.Map.Lease(background, tier.LeaseOptions{ID: l.id, Owner: l.owner}); err == nil {
				return again.Reserve(objects)
			}
			return l.Reserve(objects)
		}
	})},
	{"a lease that has ended has no objects", "released", afterPin(func(p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrEnded, tier.ErrNotFound)
	})},
	{"a release ends a later lease of the ID", "released", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.release = func() {
			b.mu.Lock()
			now := b.Map.leases[l.id]
			b.mu.Unlock()
			if now != nil {
				now.Release()
			}
		}
	})},
	{"a lease that has ended is listed", "released", func(b *broken) {
		var ended []tier.LeaseState
		leasing(func(_ *broken, l *mapLease, k *brokenLease) {
			k.release = func() {
				ended = append(ended, l.State())
				l.Release()
			}
		})(b)
		b.leases = func() []tier.LeaseState { return append(b.Map.Leases(), ended...) }
	}},
	{"a lease that has ended has a state", "released", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		s := l.State()
		k.state = func() tier.LeaseState {
			if now := l.State(); len(now.Pinned)+len(now.Reserved) > 0 {
				s = now
			}
			return s
		}
	})},

	{"Held reports reservations as pins", "reservations", afterHeld(func(p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrPending, nil)
	})},
	{"Held has no offset of reservations", "reservations", afterHeld(func(p *tier.Placed) {
		if errors.Is(p.Err, tier.ErrPending) {
			p.Offset = 0
		}
	})},
	{"Held has no bytes of reservations", "reservations", afterHeld(func(p *tier.Placed) {
		if errors.Is(p.Err, tier.ErrPending) {
			p.Bytes = nil
		}
	})},
	{"Held does not describe reservations", "reservations", afterHeld(func(p *tier.Placed) {
		if errors.Is(p.Err, tier.ErrPending) {
			p.Object = tier.Object{}
		}
	})},
	{"Held of what another lease has", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.held = func(keys []tier.Key) []tier.Placed {
			placed := l.Held(keys)
			for i := range placed {
				if x := l.m.objects[keys[i]]; errors.Is(placed[i].Err, tier.ErrNotFound) {
					placed[i] = tier.Placed{}
					if x != nil {
						placed[i] = place(x)
					}
				}
			}
			return placed
		}
	})},
	{"Held after the end", "released", afterHeld(func(p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrEnded, tier.ErrNotFound)
	})},
	{"Held after Close", "closed leases", afterHeld(func(p *tier.Placed) {
		p.Err = replaced(p.Err, fs.ErrClosed, tier.ErrEnded)
	})},

	{"Pin after Close", "closed leases", func(b *broken) {
		var kept *Map
		b.close = func() error {
			kept = b.Map.Reopen()
			return b.Map.Close()
		}
		leasing(func(_ *broken, l *mapLease, k *brokenLease) {
			k.pin = func(keys []tier.Key) []tier.Placed {
				if kept != nil {
					return kept.leases[l.id].Pin(keys)
				}
				return l.Pin(keys)
			}
		})(b)
	}},
	{"Lease after Close", "closed leases", func(b *broken) {
		b.lease = func(ctx context.Context, o tier.LeaseOptions) (tier.Lease, error) {
			l, err := b.Map.Lease(ctx, o)
			if errors.Is(err, fs.ErrClosed) {
				return &mapLease{m: b.Map, id: o.ID}, nil
			}
			return l, err
		}
	}},
	{"Commit after Close has ended", "closed leases", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := l.Commit(keys)
			for i := range errs {
				errs[i] = replaced(errs[i], fs.ErrClosed, tier.ErrEnded)
			}
			return errs
		}
	})},
	{"an open lease keeps the level from closing", "closed leases", func(b *broken) {
		b.close = func() error {
			for begin := time.Now(); len(b.Map.Leases()) > 0 && time.Since(begin) < 2*time.Second; {
				time.Sleep(time.Millisecond)
			}
			return b.Map.Close()
		}
	}},

	{"leases do not end by time", "until passes", asked(func(o *tier.LeaseOptions) { o.Until = time.Time{} })},
	{"the end of a lease leaves pins", "until passes", func(b *broken) {
		b.leases = func() []tier.LeaseState {
			b.mu.Lock()
			for _, l := range b.Map.leases {
				if !l.until.IsZero() && !b.o.Now().Before(l.until) {
					l.pinned = nil
				}
			}
			b.mu.Unlock()
			return b.Map.Leases()
		}
	}},
	{"a time ends all leases", "until passes", func(b *broken) {
		b.leases = func() []tier.LeaseState {
			b.mu.Lock()
			over := false
			for _, l := range b.Map.leases {
				over = over || !l.until.IsZero() && !b.o.Now().Before(l.until)
			}
			for _, l := range b.Map.leases {
				if over {
					l.unpinAll()
				}
			}
			b.mu.Unlock()
			return b.Map.Leases()
		}
	}},
	{"SetUntil does nothing", "SetUntil", leasing(func(_ *broken, _ *mapLease, k *brokenLease) {
		k.setUntil = func(time.Time) error { return nil }
	})},
	{"SetUntil is the later one", "SetUntil", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.setUntil = func(until time.Time) error {
			if now := l.State().Until; !until.IsZero() && (now.IsZero() || now.After(until)) {
				return nil
			}
			return l.SetUntil(until)
		}
	})},
	{"SetUntil of never is at once", "SetUntil", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.setUntil = func(until time.Time) error {
			if until.IsZero() {
				until = until.Add(1)
			}
			return l.SetUntil(until)
		}
	})},
	{"reservations end by time", "reservations outlive the time", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.setUntil = func(until time.Time) error {
			err := l.SetUntil(until)
			if s := l.State(); err == nil && len(s.Pinned) == 0 {
				l.Abort(s.Reserved)
			}
			return err
		}
	})},
	{"pins live as long as reservations", "reservations outlive the time",
		leasing(func(b *broken, l *mapLease, k *brokenLease) {
			k.setUntil = func(until time.Time) error {
				if len(l.State().Reserved) > 0 {
					return nil
				}
				return l.SetUntil(until)
			}
		})},
	{"a lease that lapsed pins what it commits", "reservations outlive the time",
		leasing(func(b *broken, l *mapLease, k *brokenLease) {
			k.commit = func(keys []tier.Key) []error {
				until := l.State().Until
				if err := l.SetUntil(time.Time{}); err != nil {
					return l.Commit(keys)
				}
				errs := l.Commit(keys)
				b.mu.Lock()
				l.until = until.Add(1000 * time.Hour)
				b.mu.Unlock()
				return errs
			}
		})},
	{"a lease that lapsed can't commit", "reservations outlive the time",
		leasing(func(_ *broken, l *mapLease, k *brokenLease) {
			k.commit = func(keys []tier.Key) []error {
				if l.expired {
					return slices.Repeat([]error{tier.ErrEnded}, len(keys))
				}
				return l.Commit(keys)
			}
		})},

	{"reservations end with the time", "write time", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.state = func() tier.LeaseState {
			if s := l.State(); l.expired {
				l.Abort(s.Reserved)
			}
			return l.State()
		}
	})},
	{"reservations never end", "write time", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.state = func() tier.LeaseState {
			s := l.State()
			b.mu.Lock()
			defer b.mu.Unlock()
			l.writesUntil = b.o.Now().Add(1000 * time.Hour)
			return s
		}
	})},
	{"Expire forgets the time that was given", "write time", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.expire = func() {
			_ = l.SetUntil(b.o.Now())
			l.Expire()
		}
	})},
	{"Expire does nothing", "Expire", leasing(func(_ *broken, _ *mapLease, k *brokenLease) { k.expire = func() {} })},
	{"Expire ends reservations", "Expire", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.expire = l.Release
	})},
	{"a lease that has expired says that it has not", "Expire", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.summary = func() tier.LeaseSummary {
			s := l.Summary()
			s.Expired = false
			return s
		}
	})},
	{"a summary leaves reservations out", "reservations", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.summary = func() tier.LeaseSummary {
			s := l.Summary()
			s.Reserved = 0
			return s
		}
	})},
	{"nobody is charged", "accounts", accounting(func(tier.Account) tier.Account { return nil })},
	{"what is there is charged", "accounts", accounting(func(a tier.Account) tier.Account {
		return &brokenAccount{Account: a, credit: func(int64) {}}
	})},
	{"a refusal is no refusal", "accounts", accounting(func(a tier.Account) tier.Account {
		return &brokenAccount{Account: a, charge: func(c tier.Charge) error {
			_ = a.Charge(c)
			return nil
		}}
	})},
	{"a refusal has another error", "accounts", accounting(func(a tier.Account) tier.Account {
		return &brokenAccount{Account: a, charge: func(c tier.Charge) error {
			if a.Charge(c) != nil {
				return tier.ErrFull
			}
			return nil
		}}
	})},
	{"an object of two leases counts twice", "accounts", accounting(func(a tier.Account) tier.Account {
		return &brokenAccount{Account: a, charge: func(c tier.Charge) error {
			c.Objects = c.Pins
			return a.Charge(c)
		}}
	})},
	{"the end by time is not reported", "accounts", accounting(func(a tier.Account) tier.Account {
		return &brokenAccount{Account: a, expired: func() {}}
	})},
	{"a new account can refuse what a lease has", "accounts", accounting(func(a tier.Account) tier.Account {
		return &brokenAccount{Account: a, charge: func(c tier.Charge) error {
			c.Had = false
			return a.Charge(c)
		}}
	})},
	{"PinPrefix goes on behind a miss", "PinPrefix", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.pinPrefix = l.Pin
	})},
	{"PinPrefix is cut behind 64", "PinPrefix", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.pinPrefix = func(keys []tier.Key) []tier.Placed { return l.PinPrefix(keys[:min(len(keys), 64)]) }
	})},
	{"ReleaseSome gives up everything", "ReleaseSome", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.some = func() bool {
			s := l.State()
			l.Unpin(s.Pinned)
			return len(s.Pinned) > 0
		}
	})},
	{"ReleaseSome does nothing", "ReleaseSome", leasing(func(_ *broken, _ *mapLease, k *brokenLease) {
		k.some = func() bool { return false }
	})},

	{"Commit publishes children first", "commit order", leasing(func(_ *broken, l *mapLease, k *brokenLease) {
		k.commit = func(keys []tier.Key) []error {
			errs := make([]error, len(keys))
			for i := len(keys) - 1; i >= 0; i-- {
				errs[i] = l.Commit(keys[i : i+1])[0]
				time.Sleep(100 * time.Microsecond)
			}
			return errs
		}
	})},
	{"offsets are behind a header", "in place", afterPin(func(p *tier.Placed) { p.Offset += 8 })},
	{"offsets of one size are one", "in place", afterReserve(func(_ *broken, _ *mapLease, p *tier.Placed) {
		p.Offset = 64
	})},
	{"offsets are behind the segment", "in place", func(b *broken) {
		b.segment = func() tier.Segment { return tier.Segment{Size: 1000, Generation: 1} }
	}},
	{"reserved bytes are a copy", "in place", afterReserve(func(b *broken, _ *mapLease, p *tier.Placed) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if x := b.objects[p.Object.Key]; x != nil {
			x.bytes = slices.Clone(x.bytes)
		}
	})},

	{"what is pinned goes for room", "pinned stays", evicts(func(m *Map, x *entry, _ tier.Object) bool {
		return x.state == there && !m.hasChild(x)
	})},
	{"what is pinned moves", "pinned stays", func(b *broken) {
		leasing(func(_ *broken, l *mapLease, k *brokenLease) {
			k.pin = func(keys []tier.Key) []tier.Placed {
				placed := l.Pin(keys)
				for i := range placed {
					placed[i].Offset += uint64(b.Map.Usage().Evicted)
				}
				return placed
			}
		})(b)
	}},
	{"the bytes of what is pinned are used again", "pinned stays",
		onPut(func(b *broken, p *tier.Put) func(error) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, x := range b.objects {
				if x.pins > 0 && b.evicted > 10 {
					clear(x.bytes)
				}
			}
			return nil
		})},
	{"Pin is no use", "Pin is a use", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.pin = func(keys []tier.Key) []tier.Placed {
			uses := b.uses()
			placed := l.Pin(keys)
			b.setUses(uses)
			return placed
		}
	})},
	{"each Pin is a use", "Pin without a use", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.pin = func(keys []tier.Key) []tier.Placed {
			l.noUse = false
			return l.Pin(keys)
		}
	})},
	{"a full level takes from leases", "full of pins", onPut(func(b *broken, p *tier.Put) func(error) error {
		b.makeRoom(p.Object, func(m *Map, x *entry, _ tier.Object) bool { return !x.held() && !m.hasChild(x) })
		b.makeRoom(p.Object, func(m *Map, x *entry, _ tier.Object) bool { return x.state == there })
		return nil
	})},
	{"Reserve in a full level is too large", "full of pins", afterReserve(func(_ *broken, _ *mapLease, p *tier.Placed) {
		p.Err = replaced(p.Err, tier.ErrFull, tier.ErrTooLarge)
	})},
	{"Reserve takes no room", "full of reservations", afterReserve(func(b *broken, _ *mapLease, p *tier.Placed) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if p.Err == nil && b.o.Capacity > 0 {
			b.bytes -= p.Object.Size
		}
	})},
	{"what goes for reservations is not counted", "full of reservations", counted(func(u *tier.Usage) {
		u.Evicted = 0
	})},
	{"the end of a lease keeps the room of reservations", "full of reservations",
		leasing(func(b *broken, l *mapLease, k *brokenLease) {
			k.release = func() {
				b.mu.Lock()
				for _, x := range l.reserved {
					b.bytes += x.Size
				}
				b.mu.Unlock()
				l.Release()
			}
		})},
	{"reservations do not evict", "full of reservations", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.reserve = func(objects []tier.Object) []tier.Placed {
			u := b.Map.Usage()
			if u.Capacity > 0 && u.Bytes+objects[0].Size+100 > u.Capacity && objects[0].Size < u.Capacity {
				return []tier.Placed{{Err: tier.ErrFull}}
			}
			return l.Reserve(objects)
		}
	})},
	{"ancestors of what is held go", "pinned children", evicts(func(m *Map, x *entry, _ tier.Object) bool {
		for _, y := range m.objects {
			if k, ok := y.ParentKey(); ok && k == x.Key && !y.held() {
				return false
			}
		}
		return !x.held()
	})},
	{"what is reserved is no child", "pinned children", evicts(func(m *Map, x *entry, _ tier.Object) bool {
		for _, y := range m.objects {
			if k, ok := y.ParentKey(); ok && k == x.Key && y.state == there {
				return false
			}
		}
		return !x.held()
	})},
	{"an ancestor goes for what is reserved", "full of ancestors",
		leasing(func(b *broken, l *mapLease, k *brokenLease) {
			k.reserve = func(objects []tier.Object) []tier.Placed {
				for _, o := range objects {
					b.makeRoom(o, func(_ *Map, x *entry, _ tier.Object) bool { return !x.held() })
				}
				return l.Reserve(objects)
			}
		})},

	{"a kill ends pins", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			l.unpinAll()
		}
	})},
	{"a kill ends reservations", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			for _, x := range l.reserved {
				m.remove(x)
			}
			l.reserved = nil
		}
	})},
	{"a kill ends leases", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			l.end()
		}
	})},
	{"a kill publishes reservations", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			for _, x := range l.reserved {
				m.publish(x)
			}
			l.reserved = nil
		}
	})},
	{"a kill forgets the notes of reservations", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			for _, x := range l.reserved {
				x.Note = nil
			}
		}
	})},
	{"a kill forgets the parents of what is pinned", "reopened leases", func(b *broken) {
		old := map[tier.Key]bool{}
		for k := range b.objects {
			old[k] = true
		}
		evicts(func(m *Map, x *entry, _ tier.Object) bool { return !x.held() && (old[x.Key] || !m.hasChild(x)) })(b)
	}},
	{"a kill forgets owners", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			l.owner = ""
		}
	})},
	{"a kill forgets times", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			l.until = time.Time{}
		}
	})},
	{"a lease is not marked as taken over", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			l.fromRestart = false
		}
	})},
	{"what is taken over is not held", "reopened leases", reopens(func(m *Map) {
		for _, x := range m.objects {
			x.pins = 0
		}
	})},
	{"a kill moves objects", "reopened leases", reopens(func(m *Map) {
		for _, x := range m.objects {
			x.offset += 64
		}
	})},
	{"a kill makes another segment", "reopened leases", func(b *broken) {
		n := uint64(1)
		if len(b.objects) > 0 {
			n = 2
		}
		b.segment = func() tier.Segment { return tier.Segment{Size: 1 << 40, Generation: n} }
	}},
	{"the bytes of reservations are made anew", "reopened leases", reopens(func(m *Map) {
		for _, l := range m.leases {
			for _, x := range l.reserved {
				x.bytes = make([]byte, x.Size)
			}
		}
	})},

	{"a release keeps the last pin of two", "lease history", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		k.release = func() {
			b.mu.Lock()
			if n := len(l.pinned); n > 1 {
				l.pinned = l.pinned[:n-1]
			}
			b.mu.Unlock()
			l.Release()
		}
	})},
	{"pins end now and then", "lease histories", leasing(func(b *broken, l *mapLease, k *brokenLease) {
		n := 0
		k.pin = func(keys []tier.Key) []tier.Placed {
			placed := l.Pin(keys)
			if n++; n%5 == 0 {
				b.mu.Lock()
				l.unpinAll()
				b.mu.Unlock()
			}
			return placed
		}
	})},
}
