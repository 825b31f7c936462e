package tiertest

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// segment: there is memory to map.
func segment(b *bed) {
	b.open(0)
	s := b.memory().Segment()
	if s.Size <= 0 || s.Generation == 0 {
		b.Fatalf("the segment is %+v", s)
	}
	b.put(object("a", 100))
	if again := b.memory().Segment(); again != s {
		b.Fatalf("the segment was %+v, and is %+v", s, again)
	}
	if n := len(b.memory().Leases()); n != 0 {
		b.Fatalf("a new level has %d leases", n)
	}
}

// leaseOptions: whose a lease is.
func leaseOptions(b *bed) {
	b.open(0)
	m := b.memory()
	for _, o := range []tier.LeaseOptions{{}, {Owner: "x"}, {ID: strings.Repeat("i", 256)},
		{ID: "i", Owner: strings.Repeat("o", 256)}} {
		l, err := m.Lease(background, o)
		b.is(fmt.Sprintf("Lease with an ID of %d bytes and an owner of %d", len(o.ID), len(o.Owner)), err,
			fs.ErrInvalid)
		if l != nil {
			b.Fatalf("Lease returns a lease, and the error %v", err)
		}
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := m.Lease(ctx, tier.LeaseOptions{ID: "canceled"})
	b.is("Lease with a context that has ended", err, context.Canceled)
	b.free()

	long := tier.LeaseOptions{ID: strings.Repeat("i", 255), Owner: strings.Repeat("o", 255)}
	odd := tier.LeaseOptions{ID: "../a lease/of\nthree\xff", Owner: "pid 7 of\n\"x\""}
	var open []tier.Lease
	for _, o := range []tier.LeaseOptions{long, odd, {ID: "a"}, {ID: "A", Owner: "x"}} {
		l, err := m.Lease(background, o)
		b.is("Lease", err, nil)
		if s := l.State(); l.ID() != o.ID || s.ID != o.ID || s.Owner != o.Owner || !s.Until.IsZero() || s.FromRestart {
			b.Fatalf("a lease with the ID %q and the owner %q has the ID %q, the state %q and the owner %q, Until %v, FromRestart %v", o.ID, o.Owner, l.ID(), s.ID, s.Owner, s.Until, s.FromRestart)
		}
		b.state(l, nil, nil)
		open = append(open, l)
	}
	if n := len(m.Leases()); n != 4 {
		b.Fatalf("Leases has %d leases, and 4 are open", n)
	}
	for _, owner := range []string{"", "y", "X"} {
		_, err := m.Lease(background, tier.LeaseOptions{ID: "A", Owner: owner})
		b.is("Lease of another owner", err, fs.ErrPermission)
	}
	b.put(object("a", 10))
	b.pin(open[3], object("a", 10)) // which has not suffered
	for _, l := range open {
		l.Release()
	}
	b.free()
	l, err := m.Lease(background, tier.LeaseOptions{ID: "A", Owner: "y"})
	b.is("Lease of an ID that another owner had", err, nil)
	if s := l.State(); s.Owner != "y" || len(s.Pinned) != 0 {
		b.Fatalf("a new lease has the state %+v of an old one", s)
	}
}

// sameLease: the same ID is the same lease, and its time the later one.
func sameLease(b *bed) {
	b.open(0)
	o, r := object("a", 100), object("r", 200)
	b.put(o)
	first := b.lease("l")
	b.pin(first, o)
	second := b.lease("l")
	b.state(second, []tier.Object{o}, nil)
	write(b.reserve(second, r)...)
	b.state(first, []tier.Object{o}, []tier.Object{r})
	b.commit(first, r)
	b.state(second, []tier.Object{o, r}, nil)
	second.Unpin(keysOf([]tier.Object{o}))
	b.state(first, []tier.Object{r}, nil)
	b.inUse(false, o)
	if n := len(b.memory().Leases()); n != 1 {
		b.Fatalf("Leases has %d leases, and 1 is open", n)
	}
	second.Release()
	b.each("Pin of a lease that was released under the same ID", first.Pin(keysOf([]tier.Object{o})), tier.ErrEnded)
	b.free()

	at := func(hours int) time.Time {
		return b.o.Now().Add(time.Duration(hours) * time.Hour).Truncate(time.Second)
	}
	five, three, seven := at(5), at(3), at(7)
	for _, c := range []struct{ ask, want time.Time }{{five, five}, {three, five}, {seven, seven}, {five, seven},
		{time.Time{}, time.Time{}}, {seven, time.Time{}}} {
		l := b.leaseUntil("t", c.ask)
		if got := l.State().Until; !got.Equal(c.want) {
			b.Fatalf("a lease that was opened until %v has the time %v, expected %v", c.ask, got, c.want)
		}
	}
	l := b.lease("t")
	b.is("SetUntil", l.SetUntil(three), nil)
	if got := l.State().Until; !got.Equal(three) {
		b.Fatalf("the time of a lease is %v after SetUntil of %v", got, three)
	}
}

// pins: what is pinned can't be deleted, and is where Pin said.
func pins(b *bed) {
	b.open(0)
	objects := []tier.Object{object("a", 100), object("b", 0), object("c", 5000)}
	objects[2].Note = []byte("note")
	b.put(objects...)
	l := b.lease("l")
	b.each("Pin", l.Pin([]tier.Key{key("x"), objects[2].Key, key(""), objects[0].Key, objects[0].Key, objects[1].Key}),
		tier.ErrNotFound, nil, fs.ErrInvalid, nil, nil, nil)
	b.state(l, objects, nil)
	first, again := b.pin(l, objects...), b.pin(l, objects...)
	for i := range first {
		if first[i].Offset != again[i].Offset {
			b.Fatalf("Pin of %s returns the offsets %d and %d", show(objects[i].Key), first[i].Offset, again[i].Offset)
		}
	}
	b.state(l, objects, nil)
	b.inUse(true, objects...)
	b.get(objects...)
	b.has(objects...)
	b.put(objects...)
	b.state(l, objects, nil)
	l.Unpin([]tier.Key{key("x"), key(""), objects[0].Key}) // pinned four times
	b.inUse(false, objects[0])
	b.inUse(true, objects[1:]...)
	b.state(l, objects[1:], nil)
	l.Unpin(keysOf(objects))
	l.Unpin(keysOf(objects))
	b.inUse(false, objects...)
	b.state(l, nil, nil)
	if n := len(l.Pin(nil)) + len(l.Reserve(nil)) + len(l.Commit(nil)) + len(l.Abort(nil)); n != 0 {
		b.Fatalf("empty batches of a lease have %d answers", n)
	}
	b.delete(objects...)
	b.each("Pin", l.Pin(keysOf(objects)), tier.ErrNotFound, tier.ErrNotFound, tier.ErrNotFound)
	l.Release()
	b.free()
}

// twoOwners: an object is kept until the last lease gives it up, and is counted once.
func twoOwners(b *bed) {
	b.open(0)
	o := object("a", 3000)
	b.put(o)
	one, two := b.lease("one"), b.lease("two")
	p := b.pin(one, o)
	held := b.l.Usage().Held
	q := b.pin(two, o)
	if now := b.l.Usage().Held; now != held {
		b.Fatalf("Usage had %d bytes that can't be evicted with one lease, and has %d with two of the same object",
			held, now)
	}
	if p[0].Offset != q[0].Offset {
		b.Fatalf("two leases have an object at the offsets %d and %d", p[0].Offset, q[0].Offset)
	}
	one.Unpin([]tier.Key{o.Key})
	b.inUse(true, o)
	b.pin(one, o)
	two.Release()
	b.inUse(true, o)
	b.state(one, []tier.Object{o}, nil)
	one.Release()
	b.inUse(false, o)
	b.free()
}

// reservations: what is reserved is invisible until it is committed, and then it is pinned.
func reservations(b *bed) {
	b.open(0)
	there, o, next := object("there", 10), object("a", 5000), child("b", "a", 300)
	o.Note, o.Tenant, o.Cost = []byte("note"), "t", 7
	b.put(there)
	l, other := b.lease("l"), b.lease("other")
	placed := b.reserve(l, o, next)
	b.state(l, nil, []tier.Object{o, next})
	for i, p := range b.held(l, nil, []tier.Object{o, next}) {
		if p.Offset != placed[i].Offset {
			b.Fatalf("%s was reserved at offset %d, and Held returns %d", show(p.Object.Key), placed[i].Offset,
				p.Offset)
		}
		if int64(len(p.Bytes)) != p.Object.Size {
			b.Fatalf("%s is reserved, and Held returns %d bytes to write to", show(p.Object.Key), len(p.Bytes))
		}
	}
	b.held(other, nil, nil)
	for range 2 {
		for i, f := range b.l.Stat(background, keysOf([]tier.Object{o, next})) {
			b.is(fmt.Sprintf("element %d of Stat, which is reserved", i), f.Err, tier.ErrPending)
		}
		gets := []tier.Get{{Key: o.Key}, {Key: there.Key}}
		b.l.Get(background, gets)
		b.is("Get of what is reserved", gets[0].Err, tier.ErrPending)
		b.is("Get beside what is reserved", gets[1].Err, nil)
		puts := []tier.Put{putOf(o), putOf(there)}
		b.l.Put(background, puts)
		b.is("Put of what is reserved", puts[0].Err, tier.ErrPending)
		b.is("Put beside what is reserved", puts[1].Err, nil)
		b.inUse(true, o)
		for _, x := range []tier.Lease{l, other} {
			b.each("Pin of what is reserved", x.Pin([]tier.Key{o.Key}), tier.ErrPending)
			b.each("Reserve of what is reserved", x.Reserve([]tier.Object{o}), tier.ErrPending)
			b.each("Reserve of what is there", x.Reserve([]tier.Object{there}), tier.ErrExists)
		}
		b.all("Commit of another lease", other.Commit([]tier.Key{o.Key}), 1, tier.ErrNotFound)
		b.all("Abort of another lease", other.Abort([]tier.Key{o.Key}), 1, tier.ErrNotFound)
		other.Unpin([]tier.Key{o.Key})
		l.Unpin([]tier.Key{o.Key})
		if list := b.list(""); len(list) != 1 {
			b.Fatalf("List beside reservations has %d objects, and 1 is there", len(list))
		}
		if u := b.l.Usage(); u.Objects != 1 {
			b.Fatalf("Usage beside reservations has %d objects, and 1 is there", u.Objects)
		}
		write(placed...)
	}
	b.state(l, nil, []tier.Object{o, next})
	errs := l.Commit([]tier.Key{key("x"), o.Key, there.Key, o.Key, key("")})
	if len(errs) != 5 {
		b.Fatalf("Commit of 5 keys has %d answers", len(errs))
	}
	for i, want := range []error{tier.ErrNotFound, nil, tier.ErrNotFound, tier.ErrNotFound, tier.ErrNotFound} {
		b.is(fmt.Sprintf("element %d of Commit", i), errs[i], want)
	}
	b.state(l, []tier.Object{o}, []tier.Object{next})
	b.is("Stat of what is still reserved", b.l.Stat(background, []tier.Key{next.Key})[0].Err, tier.ErrPending)
	b.has(there, o)
	b.all("Commit", l.Commit([]tier.Key{key("x"), next.Key})[1:], 1, nil)
	b.get(o, next)
	b.has(there, o, next)
	b.state(l, []tier.Object{o, next}, nil)
	b.inUse(true, o, next)
	for i, p := range b.pin(l, o, next) {
		if p.Offset != placed[i].Offset {
			b.Fatalf("%s was reserved at offset %d, and is at %d", show(p.Object.Key), placed[i].Offset, p.Offset)
		}
	}
	b.each("Reserve of what was committed", other.Reserve([]tier.Object{o}), tier.ErrExists)
	b.all("Abort of what was committed", l.Abort([]tier.Key{o.Key}), 1, tier.ErrNotFound)
	b.get(o)
	l.Release()
	b.inUse(false, o, next)
	b.has(there, o, next)
}

// reserveRefused: an element of Reserve is refused alone.
func reserveRefused(b *bed) {
	b.open(0)
	there, o := object("there", 10), object("a", 100)
	b.put(there)
	l := b.lease("l")
	for what, bad := range badObjects() {
		placed := l.Reserve([]tier.Object{o, bad, there, o})
		b.each("Reserve beside an object with "+what, placed, nil, fs.ErrInvalid, tier.ErrExists, tier.ErrPending)
		b.state(l, nil, []tier.Object{o})
		b.all("Abort", l.Abort([]tier.Key{o.Key}), 1, nil)
		b.state(l, nil, nil)
	}
	b.has(there)
	b.get(there)
}

// aborted: a reservation that is given up leaves nothing.
func aborted(b *bed) {
	b.open(0)
	o, other := object("a", 5000), object("b", 100)
	l := b.lease("l")
	for range 3 {
		write(b.reserve(l, o, other)...)
		errs := l.Abort([]tier.Key{key("x"), o.Key, o.Key, key("")})
		if len(errs) != 4 {
			b.Fatalf("Abort of 4 keys has %d answers", len(errs))
		}
		for i, want := range []error{tier.ErrNotFound, nil, tier.ErrNotFound, tier.ErrNotFound} {
			b.is(fmt.Sprintf("element %d of Abort", i), errs[i], want)
		}
		b.gone(o)
		b.state(l, nil, []tier.Object{other})
		b.all("Commit of what was aborted", l.Commit([]tier.Key{o.Key}), 1, tier.ErrNotFound)
		b.all("Abort", l.Abort([]tier.Key{other.Key}), 1, nil)
		b.has()
	}
	b.put(o)
	b.get(o)
	write(b.reserve(l, other)...)
	b.commit(l, other)
	b.has(o, other)
	b.get(other)
}

// released: a lease that has ended has nothing, answers ErrEnded, and ends again.
func released(b *bed) {
	b.open(0)
	o, r := object("a", 100), object("r", 5000)
	b.put(o)
	l := b.lease("l")
	b.pin(l, o)
	b.reserve(l, r)
	b.state(l, []tier.Object{o}, []tier.Object{r})
	for range 2 {
		l.Release()
		b.gone(r)
		b.free()
		b.ended(l, o, r)
	}
	b.inUse(false, o)
	b.has(o)
	anew := b.lease("l")
	b.state(anew, nil, nil)
	b.pin(anew, o)
	l.Release() // the old one, whose ID is another lease's now
	b.ended(l, o, r)
	b.inUse(true, o)
	b.state(anew, []tier.Object{o}, nil)
}

// ended expects that a lease answers ErrEnded only. o is there, r is not.
func (b *bed) ended(l tier.Lease, o, r tier.Object) {
	b.Helper()
	b.each("Pin after the end", l.Pin([]tier.Key{o.Key, key("x"), key("")}), tier.ErrEnded, tier.ErrEnded,
		tier.ErrEnded)
	b.each("Reserve after the end", l.Reserve([]tier.Object{r, o}), tier.ErrEnded, tier.ErrEnded)
	b.all("Commit after the end", l.Commit([]tier.Key{r.Key, o.Key}), 2, tier.ErrEnded)
	b.all("Abort after the end", l.Abort([]tier.Key{r.Key, o.Key}), 2, tier.ErrEnded)
	b.each("Held after the end", l.Held([]tier.Key{r.Key, o.Key}), tier.ErrEnded, tier.ErrEnded)
	b.is("SetUntil after the end", l.SetUntil(time.Time{}), tier.ErrEnded)
	l.Unpin([]tier.Key{o.Key})
	l.Expire()
	if l.ReleaseSome() {
		b.Fatalf("ReleaseSome gave up something after the end")
	}
	if n := l.Summary(); n != (tier.LeaseSummary{Ended: true}) {
		b.Fatalf("a lease has the summary %+v after its end", n)
	}
	if s := l.State(); len(s.Pinned)+len(s.Reserved) != 0 || s.Bytes != 0 {
		b.Fatalf("a lease has the state %+v after its end", s)
	}
}

// closedLeases: after Close of the level, leases answer fs.ErrClosed.
func closedLeases(b *bed) {
	b.open(0)
	o, r := object("a", 100), object("r", 100)
	b.put(o)
	l := b.lease("l")
	b.pin(l, o)
	b.reserve(l, r)
	m := b.memory()
	b.wait("Close with an open lease", func() { b.is("Close", b.l.Close(), nil) })
	b.each("Pin after Close", l.Pin([]tier.Key{o.Key, key("x")}), fs.ErrClosed, fs.ErrClosed)
	b.each("Reserve after Close", l.Reserve([]tier.Object{object("n", 1)}), fs.ErrClosed)
	b.all("Commit after Close", l.Commit([]tier.Key{r.Key}), 1, fs.ErrClosed)
	b.all("Abort after Close", l.Abort([]tier.Key{r.Key}), 1, fs.ErrClosed)
	b.each("Held after Close", l.Held([]tier.Key{r.Key, o.Key}), fs.ErrClosed, fs.ErrClosed)
	b.is("SetUntil after Close", l.SetUntil(b.o.Now()), fs.ErrClosed)
	l.Unpin([]tier.Key{o.Key})
	l.Release()
	l.Expire()
	b.each("PinPrefix after Close", l.PinPrefix([]tier.Key{o.Key, key("x")}), fs.ErrClosed)
	_ = l.ReleaseSome()
	_ = l.Summary()
	_ = l.State()
	_ = m.Leases()
	_ = m.Segment()
	again, err := m.Lease(background, tier.LeaseOptions{ID: "n"})
	b.is("Lease after Close", err, fs.ErrClosed)
	if again != nil {
		b.Fatalf("Lease after Close returns a lease")
	}
}
