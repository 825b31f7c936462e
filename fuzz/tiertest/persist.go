package tiertest

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ringcache/ringcache/tier"
)

// damaged: damage is a miss that is named, once, and never bytes.
func damaged(b *bed) {
	for _, way := range []string{"own memory", "Into", "To"} {
		b.open(0)
		o, other := object("a", 5000), object("b", 5000)
		o.Note = []byte("note")
		b.put(o, other)
		b.o.Damage(b, b.l, o.Key)
		g := tier.Get{Key: o.Key}
		var calls atomic.Int32
		switch way {
		case "Into":
			g.Into = func(x tier.Object) ([]byte, error) {
				calls.Add(1)
				return make([]byte, x.Size), nil
			}
		case "To":
			g.To = &bytes.Buffer{}
		}
		gets := []tier.Get{{Key: other.Key}, g, {Key: other.Key}}
		b.l.Get(background, gets)
		b.is("Get of what is damaged, with "+way, gets[1].Err, tier.ErrNotFound)
		b.is("Get of what is damaged, with "+way, gets[1].Err, tier.ErrCorrupt)
		if gets[1].Bytes != nil && way == "own memory" {
			b.Fatalf("Get of what is damaged returns bytes")
		}
		if calls.Load() > 1 {
			b.Fatalf("Get of what is damaged called Into %d times", calls.Load())
		}
		for _, i := range []int{0, 2} {
			b.is("Get beside what is damaged", gets[i].Err, nil)
			if err := whole(gets[i].Object, gets[i].Bytes, other); err != nil {
				b.Fatalf("Get beside what is damaged: %v", err)
			}
		}
		gets = []tier.Get{{Key: o.Key}}
		b.l.Get(background, gets)
		b.is("Get of what was damaged, again", gets[0].Err, tier.ErrNotFound)
		if u := b.l.Usage(); u.Corrupt != 1 && u.Corrupt != -1 {
			b.Fatalf("Usage has %d corrupt objects, and 1 was damaged", u.Corrupt)
		}
		b.gone(o)
		b.has(other)
		b.put(o)
		b.get(o, other)
		b.has(o, other)
	}
}

// reopened: what a closed level had is there again, and is what it was.
func reopened(b *bed) {
	b.reopened(func() { b.is("Close", b.l.Close(), nil) }, b.o.Reopen)
}

// killed: the same without Close, beside a Put that had begun.
func killed(b *bed) {
	b.reopened(func() {}, b.o.Kill)
}

// reopened ends the level in some way, and opens it again, a few times.
func (b *bed) reopened(end func(), open func(testing.TB, tier.Level) tier.Level) {
	b.open(0)
	objects := []tier.Object{object("empty", 0), object("a", 5000), child("b", "a", 100), object("../c\n", 4096),
		object("big", 1<<20)}
	objects[1].Note, objects[1].Tenant, objects[1].Cost = []byte("note\x00"), "t", 12345
	for i := range 30 {
		objects = append(objects, child(fmt.Sprintf("%d", i), "empty", int64(i*i)))
	}
	deleted := object("deleted", 300)
	b.put(append(objects, deleted)...)
	b.delete(deleted)
	before := b.usage(objects...)
	for i := range 3 {
		end()
		old := b.l
		b.take(open(b, old))
		if b.l.Name() != old.Name() {
			b.Fatalf("the name was %q, and is %q after opening again", old.Name(), b.l.Name())
		}
		b.eventually("all objects are there after opening again", func() bool {
			u := b.l.Usage()
			return len(b.list("")) == len(objects) && (u.Objects == -1 || u.Objects == int64(len(objects)))
		})
		b.has(objects...)
		b.get(objects...)
		b.gone(deleted)
		if after := b.usage(objects...); after.Bytes != before.Bytes {
			b.Fatalf("Usage had %d bytes, and has %d after opening again", before.Bytes, after.Bytes)
		}
		o := object(fmt.Sprintf("new %d", i), 70)
		b.put(o)
		b.get(o)
		objects = append(objects, o)
		before = b.usage(objects...)
	}
	b.delete(objects...)
	b.has()
}

// reopenedFull: the rules of eviction hold for what an earlier process put.
func reopenedFull(b *bed) {
	unit := b.openLimited()
	var family, hot []tier.Object
	for i := range 3 {
		c := chain(fmt.Sprintf("chain %d", i), 4, unit)
		family = append(family, c...)
		hot = append(hot, c[3])
	}
	b.put(family...)
	b.is("Close", b.l.Close(), nil)
	b.take(b.o.Reopen(b, b.l))
	b.eventually("all objects are there after opening again", func() bool { return len(b.list("")) == len(family) })
	b.has(family...)
	b.press(family, hot, unit)
}

// killedInPut: a Put that a kill ends leaves nothing.
func killedInPut(b *bed) {
	b.open(0)
	o, half := object("a", 100), object("half", 300_000)
	b.put(o)
	g := newGate(content(half.Key, half.Size))
	stuck := make(chan struct{})
	l := b.l
	go func() {
		defer close(stuck)
		l.Put(background, []tier.Put{{Object: half, From: g}})
	}()
	b.until("Put begins", g.began)
	b.take(b.o.Kill(b, l))
	b.gone(half)
	b.has(o)
	b.put(half)
	b.get(o, half)
	b.has(o, half)
	// The level that was killed goes on here, as it would not: whatever it does with what it has, it is
	// answered.
	close(g.open)
	b.until("Put of the level that was killed", stuck)
}
