package tiertest

import (
	"io/fs"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// soon returns a time for leases to end, and what waits until it has passed.
func (b *bed) soon() (until time.Time, pass func()) {
	if b.o.Advance == nil {
		until = b.o.Now().Add(20 * time.Millisecond)
		return until, func() { time.Sleep(until.Sub(b.o.Now())) }
	}
	return b.o.Now().Add(time.Hour), func() { b.o.Advance(2 * time.Hour) }
}

// untilPasses: a lease ends by itself when its time has passed, and others do not.
func untilPasses(b *bed) {
	b.open(0)
	o, other, r := object("a", 100), object("b", 100), object("r", 10)
	b.put(o, other)
	until, pass := b.soon()
	never, later := b.lease("never"), b.leaseUntil("later", b.o.Now().Add(1000*time.Hour))
	b.pin(never, other)
	l := b.leaseUntil("l", until)
	_ = l.Pin(keysOf([]tier.Object{o, other})) // it may be over already
	pass()
	b.eventually("the end of a lease whose time has passed", func() bool { return len(b.memory().Leases()) == 2 })
	b.ended(l, o, r)
	b.inUse(false, o)
	b.inUse(true, other)
	b.state(never, []tier.Object{other}, nil)
	b.state(later, nil, nil)
	b.pin(later, o)
	anew, err := b.memory().Lease(background, tier.LeaseOptions{ID: "l", Owner: "another"})
	b.is("Lease of an ID whose lease has ended", err, nil)
	anew.Release()
	never.Release()
	later.Release()
	b.inUse(false, o, other)
	b.free()
}

// setUntil: a lease's time can be put off, and be now.
func setUntil(b *bed) {
	b.open(0)
	o := object("a", 100)
	b.put(o)
	l := b.lease("l")
	b.pin(l, o)
	b.is("SetUntil of the past", l.SetUntil(b.o.Now().Add(-time.Second)), nil)
	b.ended(l, o, object("r", 1))
	b.inUse(false, o)
	b.free()

	until, pass := b.soon()
	l = b.leaseUntil("l", b.o.Now().Add(time.Hour))
	b.is("SetUntil", l.SetUntil(until.Add(2000*time.Hour)), nil)
	k := b.leaseUntil("k", b.o.Now().Add(time.Hour))
	b.is("SetUntil of never", k.SetUntil(time.Time{}), nil)
	one, two := object("one", 10), object("two", 10)
	b.put(one, two)
	b.pin(l, one)
	b.pin(k, two)
	pass()
	b.inUse(true, one, two)
	b.state(l, []tier.Object{one}, nil)
	b.state(k, []tier.Object{two}, nil)
	if !k.State().Until.IsZero() {
		b.Fatalf("a lease without an end has the time %v", k.State().Until)
	}
	l.Release()
	k.Release()
	b.free()
}

// reservationsOutlive: reservations don't end by time. Their lease loses its pins, and ends with the last of
// them.
func reservationsOutlive(b *bed) {
	for _, how := range []string{"Commit", "Abort", "Release", "SetUntil"} {
		b.open(0)
		o, r, s := object("a", 100), object("r", 5000), object("s", 100)
		b.put(o)
		l := b.lease("l")
		b.pin(l, o)
		placed := b.reserve(l, r, s)
		write(placed[0])
		if how == "Commit" {
			until, pass := b.soon()
			b.is("SetUntil", l.SetUntil(until), nil)
			pass()
			b.eventually("the end of a pin whose time has passed", func() bool { return len(l.State().Pinned) == 0 })
		} else {
			b.is("SetUntil of the past", l.SetUntil(b.o.Now().Add(-time.Second)), nil)
		}
		b.inUse(false, o)
		b.state(l, nil, []tier.Object{r, s})
		b.is("Stat of what is reserved, after the time of the lease", b.l.Stat(background, []tier.Key{r.Key})[0].Err,
			tier.ErrPending)
		other := b.lease("other")
		b.each("Reserve of what is reserved, after the time of the lease", other.Reserve([]tier.Object{r}),
			tier.ErrPending)
		other.Release()
		b.each("Pin after the time of the lease", l.Pin([]tier.Key{o.Key}), tier.ErrEnded)
		b.each("Reserve after the time of the lease", l.Reserve([]tier.Object{object("n", 1)}), tier.ErrEnded)
		write(placed[1])
		switch how {
		case "Commit":
			b.commit(l, r)
			b.inUse(false, r)
			b.state(l, nil, []tier.Object{s})
			b.commit(l, s)
			b.get(r, s)
			b.inUse(false, r, s)
			b.has(o, r, s)
		case "Abort":
			b.all("Abort", l.Abort(keysOf([]tier.Object{r, s})), 2, nil)
			b.gone(r, s)
		case "Release":
			l.Release()
			b.gone(r, s)
		case "SetUntil":
			b.is("SetUntil of a lease that has reservations only", l.SetUntil(time.Time{}), nil)
			b.pin(l, o)
			b.commit(l, r, s)
			b.state(l, []tier.Object{o, r, s}, nil)
			b.inUse(true, o, r, s)
			l.Release()
		}
		b.free()
		b.ended(l, o, object("n", 1))
	}
}

// reopenedLeases: leases outlive the process of the level, with pins, reservations and places.
func reopenedLeases(b *bed) {
	for _, how := range []string{"Kill", "Reopen"} {
		open := b.o.Kill
		if how == "Reopen" {
			if open = b.o.Reopen; open == nil {
				continue
			}
		}
		unit := b.openLimited()
		o, p, r, s, freed := object("pinned", unit), object("committed", unit), object("reserved", unit),
			child("child", "reserved", 100), object("freed", 100)
		root := object("root", unit)
		o.Parent = root.Name // which is kept by what is pinned
		r.Note, r.Tenant, r.Cost = []byte("note"), "t", 7
		b.put(root, o, freed)
		l, short, gone := b.leaseUntil("l", b.o.Now().Add(9000*time.Hour).Truncate(time.Second)), b.lease("short"),
			b.lease("gone")
		before := b.pin(l, o)
		b.pin(gone, freed)
		gone.Release()
		b.pin(short, freed)
		placed := b.reserve(l, p, r, s)
		write(placed[0], placed[1])
		b.commit(l, p)
		until := l.State().Until
		generation := b.memory().Segment().Generation
		shortly, pass := b.soon()
		b.is("SetUntil", short.SetUntil(shortly), nil)

		if how == "Reopen" {
			b.is("Close", b.l.Close(), nil)
		}
		b.take(open(b, b.l))
		if now := b.memory().Segment().Generation; now != generation {
			b.Fatalf("the generation of the segment was %d, and is %d after opening again: leases were lost",
				generation, now)
		}
		pass()
		b.eventually("the end of a lease whose time has passed, taken over", func() bool {
			return len(b.memory().Leases()) == 1
		})
		state := b.memory().Leases()[0]
		if state.ID != "l" || state.Owner != "owner" || !state.FromRestart || !state.Until.Equal(until) ||
			!sameKeys(state.Pinned, []tier.Object{o, p}) || !sameKeys(state.Reserved, []tier.Object{r, s}) {
			b.Fatalf("a lease that was taken over has the state %+v", state)
		}
		b.inUse(false, freed)
		b.inUse(true, o, p, r)
		b.is("Stat of what was reserved before", b.l.Stat(background, []tier.Key{r.Key})[0].Err, tier.ErrPending)
		for i := range 40 {
			b.put(object(stringOf("press", i), unit))
			if !b.isThere(root) {
				b.Fatalf("the parent of what is pinned has gone, after opening again")
			}
		}
		_, err := b.memory().Lease(background, tier.LeaseOptions{ID: "l", Owner: "another"})
		b.is("Lease of another owner, of one that was taken over", err, fs.ErrPermission)
		l = b.lease("l")
		found := slices.Concat(b.held(l, []tier.Object{o, p}, []tier.Object{r, s}), b.pin(l, o, p))
		for i, want := range []tier.Placed{before[0], placed[0], placed[1], placed[2], before[0], placed[0]} {
			if now := found[i]; now.Offset != want.Offset {
				b.Fatalf("%s was at offset %d, and is at %d after opening again", show(now.Object.Key), want.Offset,
					now.Offset)
			}
		}
		if b.o.At != nil {
			copy(b.o.At(b, b.l, placed[2].Offset, s.Size), content(s.Key, s.Size))
			b.commit(l, r, s)
			b.get(r, s)
		} else {
			b.commit(l, r)
			b.get(r)
			b.all("Abort", l.Abort([]tier.Key{s.Key}), 1, nil)
		}
		b.inUse(true, o, p, r)
		l.Release()
		b.inUse(false, o, p, r)
		b.free()
	}
}
