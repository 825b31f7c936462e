package tiertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// memory returns the level as one with leases.
func (b *bed) memory() tier.MemoryLevel {
	b.Helper()
	m, ok := b.l.(tier.MemoryLevel)
	if !ok {
		b.Fatalf("the level is a %T, which is no tier.MemoryLevel", b.l)
	}
	return m
}

// lease opens a lease that does not end by time.
func (b *bed) lease(id string) tier.Lease {
	b.Helper()
	return b.leaseUntil(id, time.Time{})
}

func (b *bed) leaseUntil(id string, until time.Time) tier.Lease {
	b.Helper()
	l, err := b.memory().Lease(background, tier.LeaseOptions{ID: id, Owner: "owner", Until: until})
	b.is("Lease", err, nil)
	if l == nil || l.ID() != id {
		b.Fatalf("Lease of ID %q returned %v", id, l)
	}
	return l
}

// pin pins objects, which has to succeed, and returns where they are.
func (b *bed) pin(l tier.Lease, objects ...tier.Object) []tier.Placed {
	b.Helper()
	placed := l.Pin(keysOf(objects))
	if len(placed) != len(objects) {
		b.Fatalf("Pin of %d keys has %d answers", len(objects), len(placed))
	}
	for i, p := range placed {
		b.is("Pin of "+show(objects[i].Key), p.Err, nil)
		if err := whole(p.Object, p.Bytes, objects[i]); err != nil {
			b.Fatalf("Pin: %v", err)
		}
	}
	return placed
}

// reserve reserves objects, which has to succeed, and does not write their bytes.
func (b *bed) reserve(l tier.Lease, objects ...tier.Object) []tier.Placed {
	b.Helper()
	placed := l.Reserve(objects)
	if len(placed) != len(objects) {
		b.Fatalf("Reserve of %d objects has %d answers", len(objects), len(placed))
	}
	for i, p := range placed {
		b.is("Reserve of "+show(objects[i].Key), p.Err, nil)
		if err := described(p.Object, objects[i]); err != nil {
			b.Fatalf("Reserve: %v", err)
		}
		if int64(len(p.Bytes)) != objects[i].Size {
			b.Fatalf("Reserve of %d bytes returned %d", objects[i].Size, len(p.Bytes))
		}
	}
	return placed
}

// write writes the bytes of reservations.
func write(placed ...tier.Placed) {
	for _, p := range placed {
		copy(p.Bytes, content(p.Object.Key, p.Object.Size))
	}
}

// commit commits reservations, which has to succeed.
func (b *bed) commit(l tier.Lease, objects ...tier.Object) {
	b.Helper()
	b.all("Commit", l.Commit(keysOf(objects)), len(objects), nil)
}

// all expects n answers that are the same error, or none.
func (b *bed) all(what string, errs []error, n int, want error) {
	b.Helper()
	if len(errs) != n {
		b.Fatalf("%s of %d keys has %d answers", what, n, len(errs))
	}
	for i, err := range errs {
		b.is(fmt.Sprintf("element %d of %s", i, what), err, want)
	}
}

// each expects an answer for each element.
func (b *bed) each(what string, got []tier.Placed, want ...error) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s of %d elements has %d answers", what, len(want), len(got))
	}
	for i, p := range got {
		b.is(fmt.Sprintf("element %d of %s", i, what), p.Err, want[i])
		if p.Err != nil && p.Bytes != nil {
			b.Fatalf("element %d of %s has bytes, and the error %v", i, what, p.Err)
		}
	}
}

// inUse expects whether leases keep objects from being deleted. What none keeps is deleted, and put again.
func (b *bed) inUse(is bool, objects ...tier.Object) {
	b.Helper()
	for _, o := range objects {
		err := b.l.Delete(background, []tier.Key{o.Key})[0]
		if is {
			b.is("Delete of "+show(o.Key)+", which a lease has", err, tier.ErrInUse)
			continue
		}
		b.is("Delete of "+show(o.Key)+", which no lease has any more", err, nil)
		b.put(o)
	}
}

func keysOf(objects []tier.Object) []tier.Key {
	keys := make([]tier.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.Key
	}
	return keys
}

// state expects what a lease has, of its State and of Leases.
func (b *bed) state(l tier.Lease, pinned, reserved []tier.Object) {
	b.Helper()
	states := map[string]tier.LeaseState{"State": l.State()}
	for _, s := range b.memory().Leases() {
		if s.ID == l.ID() {
			states["Leases"] = s
		}
	}
	if len(states) != 2 {
		b.Fatalf("lease %q is not in Leases", l.ID())
	}
	var sum int64
	for _, o := range slices.Concat(pinned, reserved) {
		sum += o.Size
	}
	for what, s := range states {
		if s.ID != l.ID() || !sameKeys(s.Pinned, pinned) || !sameKeys(s.Reserved, reserved) {
			b.Fatalf("%s: lease %q has %v pinned and %v reserved, expected %v and %v", what, s.ID, s.Pinned,
				s.Reserved, keysOf(pinned), keysOf(reserved))
		}
		if s.Bytes < sum || sum == 0 && len(pinned)+len(reserved) == 0 && s.Bytes != 0 {
			b.Fatalf("%s: lease %q has %d bytes, and its objects have %d", what, s.ID, s.Bytes, sum)
		}
	}
	if s, n := states["State"], l.Summary(); n.Pinned != len(pinned) || n.Reserved != len(reserved) ||
		n.Bytes != s.Bytes || !n.Until.Equal(s.Until) || n.Ended {
		b.Fatalf("lease %q has the summary %+v, and the state %+v", l.ID(), n, s)
	}
	b.held(l, pinned, reserved)
	if u := b.l.Usage(); u.Held != -1 && u.Held < sum {
		b.Fatalf("Usage has %d bytes that can't be evicted, and a lease has %d", u.Held, sum)
	}
}

// held expects where the objects of a lease are, and returns that: first of those that are pinned.
func (b *bed) held(l tier.Lease, pinned, reserved []tier.Object) []tier.Placed {
	b.Helper()
	all := slices.Concat(pinned, reserved)
	placed := l.Held(append(keysOf(all), key("not of the lease")))
	if len(placed) != len(all)+1 {
		b.Fatalf("Held of %d keys has %d answers", len(all)+1, len(placed))
	}
	for i, o := range all {
		var want error
		if i >= len(pinned) {
			want = tier.ErrPending
		}
		b.is("Held of "+show(o.Key), placed[i].Err, want)
		if err := described(placed[i].Object, o); err != nil {
			b.Fatalf("Held: %v", err)
		}
	}
	b.is("Held of what the lease does not have", placed[len(all)].Err, tier.ErrNotFound)
	return placed[:len(all)]
}

func sameKeys(keys []tier.Key, objects []tier.Object) bool {
	want := map[tier.Key]bool{}
	for _, o := range objects {
		want[o.Key] = true
	}
	for _, k := range keys {
		if !want[k] {
			return false
		}
		delete(want, k)
	}
	return len(want) == 0
}

// free expects that no lease has anything.
func (b *bed) free() {
	b.Helper()
	if u := b.l.Usage(); u.Held > 0 {
		b.Fatalf("Usage has %d bytes that can't be evicted, and no lease is open", u.Held)
	}
	if n := len(b.memory().Leases()); n != 0 {
		b.Fatalf("%d leases are open after their end", n)
	}
}
