package tiertest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

var errRefused = errors.New("the account refuses")

// account is a tier.Account that adds up what it is charged for.
type account struct {
	mu             sync.Mutex
	refuses        bool
	objects, bytes int64
	last           tier.Charge
	expired        int
}

func (a *account) Charge(c tier.Charge) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = c
	if !a.refuses || c.Had {
		a.objects++
		a.bytes += c.Size
	}
	if a.refuses {
		return fmt.Errorf("%w: %w", errRefused, tier.ErrFull)
	}
	return nil
}

func (a *account) Credit(size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects--
	a.bytes -= size
}

func (a *account) Expired() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expired++
}

func (a *account) refuse(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuses = is
}

// chargedFor expects what an account is charged for.
func (b *bed) chargedFor(a *account, objects ...tier.Object) {
	b.Helper()
	var bytes int64
	for _, o := range objects {
		bytes += o.Size
	}
	is := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.objects == int64(len(objects)) && a.bytes == bytes
	}
	b.eventually(fmt.Sprintf("an account is charged for %d objects of %d bytes", len(objects), bytes), is)
}

// leased expects what the last Charge said that all leases have.
func (b *bed) leased(a *account, want tier.Charge) {
	b.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != want {
		b.Fatalf("an account was asked for %+v, expected %+v", a.last, want)
	}
}

func (b *bed) leaseOf(id string, a *account) tier.Lease {
	b.Helper()
	l, err := b.memory().Lease(background, tier.LeaseOptions{ID: id, Owner: "owner", Account: a})
	b.is("Lease with an account", err, nil)
	return l
}

// accounts: an account is charged for what its leases have, and may refuse it.
func accounts(b *bed) {
	b.open(0)
	o, r, n := object("a", 100), object("r", 50), object("n", 7)
	b.put(o)
	one, two := &account{}, &account{}
	nobody, l, k := b.lease("nobody"), b.leaseOf("l", one), b.leaseOf("k", two)
	b.pin(nobody, o)
	for range 2 {
		b.pin(l, o)
		b.leased(one, tier.Charge{Size: 100, Objects: 1, Bytes: 100, Pins: 1})
	}
	b.pin(k, o)
	b.leased(two, tier.Charge{Size: 100, Objects: 1, Bytes: 100, Pins: 2})
	write(b.reserve(l, r)...)
	b.leased(one, tier.Charge{Size: 50, Objects: 2, Bytes: 150, Pins: 3})
	b.each("Reserve of what another lease has reserved, and of what is there", k.Reserve([]tier.Object{r, o}),
		tier.ErrPending, tier.ErrExists)
	b.each("Reserve of what the lease has reserved", l.Reserve([]tier.Object{r}), tier.ErrPending)
	b.each("Pin of what is not there", l.Pin([]tier.Key{n.Key}), tier.ErrNotFound)
	b.chargedFor(one, o, r)
	b.chargedFor(two, o)
	b.commit(l, r)
	b.chargedFor(one, o, r)
	l.Unpin(keysOf([]tier.Object{o, o, n}))
	b.chargedFor(one, r)
	b.reserve(l, n)
	b.all("Abort", l.Abort(keysOf([]tier.Object{n})), 1, nil)
	b.chargedFor(one, r)

	one.refuse(true)
	for what, p := range map[string][]tier.Placed{
		"Pin": l.Pin([]tier.Key{o.Key}), "PinPrefix": l.PinPrefix(keysOf([]tier.Object{o, r})),
		"Reserve": l.Reserve([]tier.Object{n}),
	} {
		b.each(what+" that the account refuses", p, tier.ErrFull)
		b.is(what+" that the account refuses", p[0].Err, errRefused)
	}
	b.pin(l, r)
	b.gone(n)
	b.state(l, []tier.Object{r}, nil)
	b.chargedFor(one, r)

	three := &account{refuses: true}
	l = b.leaseOf("l", three)
	b.chargedFor(one)
	b.chargedFor(three, r)
	l.Release()
	b.chargedFor(three)
	l = b.leaseOf("l", one)
	one.refuse(false)
	b.reserve(l, n)
	b.leased(one, tier.Charge{Size: 7, Objects: 2, Bytes: 107, Pins: 2})
	l.Release()
	nobody.Release()
	b.is("SetUntil of the past", k.SetUntil(b.o.Now().Add(-time.Second)), nil)
	b.ended(k, o, n)
	b.chargedFor(two)
	if one.expired != 0 || two.expired != 1 || three.expired != 0 {
		b.Fatalf("accounts learned of %d, %d and %d ends by time, and there was one, of the second", one.expired,
			two.expired, three.expired)
	}
	b.free()
}

// writeTime: reservations end some time after the time of their lease, and with them the lease.
func writeTime(b *bed) {
	if b.o.Advance == nil {
		b.Logf("left out: the option Advance is not set")
		return
	}
	for _, how := range []string{"Until", "Expire"} {
		b.open(0)
		r, s := object("r", 100), object("s", 100)
		a := &account{}
		l := b.leaseOf("l", a)
		b.is("SetUntil", l.SetUntil(b.o.Now().Add(time.Hour)), nil)
		write(b.reserve(l, r, s)...)
		if how == "Expire" { // the client believes in the time that it was given
			l.Expire()
		}
		b.o.Advance(time.Hour)
		b.state(l, nil, []tier.Object{r, s})
		b.o.Advance(tier.WriteTime - time.Minute)
		b.state(l, nil, []tier.Object{r, s})
		b.commit(l, s)
		b.o.Advance(time.Minute)
		b.eventually("the end of reservations", func() bool { return len(b.memory().Leases()) == 0 })
		b.ended(l, s, r)
		b.gone(r)
		b.has(s)
		b.chargedFor(a)
		if a.expired != 1 {
			b.Fatalf("%s: an account learned of %d ends by time", how, a.expired)
		}
		b.free()
	}
}

// expire: a lease can end as by time.
func expire(b *bed) {
	b.open(0)
	o, r := object("a", 100), object("r", 50)
	b.put(o)
	l := b.lease("l")
	b.pin(l, o)
	l.Expire()
	b.ended(l, o, r)
	b.inUse(false, o)
	b.free()
	l = b.lease("l")
	b.pin(l, o)
	b.reserve(l, r)
	l.Expire()
	b.inUse(false, o)
	b.state(l, nil, []tier.Object{r})
	b.each("Pin after Expire", l.Pin([]tier.Key{o.Key}), tier.ErrEnded)
	b.each("PinPrefix after Expire", l.PinPrefix(keysOf([]tier.Object{o, o})), tier.ErrEnded)
	if !l.Summary().Expired {
		b.Fatalf("a lease after Expire has the summary %+v", l.Summary())
	}
	b.is("SetUntil after Expire", l.SetUntil(time.Time{}), nil)
	b.pin(l, o)
	b.state(l, []tier.Object{o}, []tier.Object{r})
	l.Expire()
	b.all("Abort", l.Abort([]tier.Key{r.Key}), 1, nil)
	b.ended(l, o, r)
	b.free()
}

// pinPrefix: PinPrefix pins what is in front of the first object that it can't pin.
func pinPrefix(b *bed) {
	b.open(0)
	var all []tier.Object
	for i := range 200 {
		all = append(all, object(fmt.Sprint(i), 10))
	}
	r := object("r", 10)
	b.put(all...)
	l := b.lease("l")
	b.reserve(b.lease("k"), r)
	keys := keysOf(all)
	for _, c := range []struct {
		second tier.Key
		want   error
	}{{key("none"), tier.ErrNotFound}, {r.Key, tier.ErrPending}} {
		placed := l.PinPrefix(append([]tier.Key{keys[0], c.second}, keys[1:]...))
		b.each("PinPrefix", placed, nil, c.want)
		b.state(l, all[:1], nil)
	}
	if n := len(l.PinPrefix(nil)); n != 0 {
		b.Fatalf("PinPrefix of no keys has %d answers", n)
	}
	placed := l.PinPrefix(append(keys, r.Key))
	if len(placed) != len(keys)+1 {
		b.Fatalf("PinPrefix of %d objects that are there and one that is not has %d answers", len(keys), len(placed))
	}
	for i, o := range all {
		b.is("PinPrefix", placed[i].Err, nil)
		if err := whole(placed[i].Object, placed[i].Bytes, o); err != nil {
			b.Fatalf("PinPrefix: %v", err)
		}
	}
	b.state(l, all, nil)
	b.inUse(true, all...)
	l.Release()
	b.each("PinPrefix after the end", l.PinPrefix(keys), tier.ErrEnded)
	b.inUse(false, all[:3]...)
}

// releaseSome: what a large lease has can be given up little by little, and all of a small one at once.
func releaseSome(b *bed) {
	b.open(0)
	var all []tier.Object
	for i := range 500 {
		all = append(all, object(fmt.Sprint(i), 10))
	}
	b.put(all[:300]...)
	small, a := b.lease("small"), &account{}
	large := b.leaseOf("large", a)
	b.pin(small, all[0])
	b.pin(large, all[:300]...)
	b.reserve(large, all[300:]...)
	last := large.Summary()
	for large.ReleaseSome() {
		now := large.Summary()
		if n := now.Pinned + now.Reserved; n >= last.Pinned+last.Reserved || n == 0 ||
			last.Pinned+last.Reserved-n > 100 {
			b.Fatalf("ReleaseSome of a lease with %+v left %+v", last, now)
		}
		if a.objects != int64(now.Pinned+now.Reserved) {
			b.Fatalf("ReleaseSome left %+v, and an account is charged for %d objects", now, a.objects)
		}
		if last = now; now.Reserved < 200 && now.Pinned > 0 {
			b.Fatalf("ReleaseSome gave up reservations, and left pins: %+v", now)
		}
	}
	if n := last.Pinned + last.Reserved; n > 100 || !large.Summary().Ended {
		b.Fatalf("ReleaseSome ended a lease with %+v, which is %+v now", last, large.Summary())
	}
	b.state(small, all[:1], nil)
	b.chargedFor(a)
	b.inUse(true, all[0])
	b.inUse(false, all[1:300]...)
	if small.ReleaseSome() || !small.Summary().Ended {
		b.Fatalf("ReleaseSome left the only object of a lease")
	}
	b.free()
}
