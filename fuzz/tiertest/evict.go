package tiertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ringcache/ringcache/tier"
)

// fill puts objects until one of them has gone, and returns those that are there, the oldest first.
func (b *bed) fill(prefix string, unit int64) []tier.Object {
	b.Helper()
	var all []tier.Object
	for i := range 100 {
		o := object(fmt.Sprintf("%s %d", prefix, i), unit)
		all = append(all, o)
		b.put(o)
		var there []tier.Object
		for i, is := range b.there(all...) {
			if is {
				there = append(there, all[i])
			}
		}
		if err := bounds(b.l.Usage()); err != nil {
			b.Fatalf("%v", err)
		}
		if len(there) < len(all) {
			if len(there) < 4 {
				b.Fatalf("only %d objects of %d bytes are there after %d puts, with a capacity of %d: set Options.Capacity higher", len(there), unit, len(all), b.o.Capacity)
			}
			return there
		}
	}
	b.Fatalf("100 objects of %d bytes are there, and the capacity is %d", unit, b.o.Capacity)
	return nil
}

// tooLarge: what could never have room is refused as such, and nothing goes for it.
func tooLarge(b *bed) {
	unit := b.openLimited()
	kept := []tier.Object{object("a", unit), object("b", unit)}
	b.put(kept...)
	for _, size := range []int64{b.o.Capacity + 1, b.o.Capacity * 2, 1 << 40, math.MaxInt64 - 1, math.MaxInt64} {
		huge := object("huge", size)
		small := object("small", 10)
		puts := []tier.Put{{Object: huge, From: endless{}}, putOf(small)}
		b.wait("Put of what is too large", func() { b.l.Put(background, puts) })
		b.is(fmt.Sprintf("Put of %d bytes with a capacity of %d", size, b.o.Capacity), puts[0].Err, tier.ErrTooLarge)
		b.is("Put behind what is too large", puts[1].Err, nil)
		b.gone(huge)
		b.has(append(kept, small)...)
		b.delete(small)
	}
	huge := putOf(object("huge", b.o.Capacity+1))
	puts := []tier.Put{huge}
	b.l.Put(background, puts)
	b.is("Put of more bytes than the capacity", puts[0].Err, tier.ErrTooLarge)
	b.has(kept...)
	if u := b.l.Usage(); u.Evicted > 0 {
		b.Fatalf("%d objects went for one that is too large", u.Evicted)
	}
	b.get(kept...)
}

// endless is a stream without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// capacity: bytes are never above the capacity, what is put is there, and what goes is counted.
func capacity(b *bed) {
	unit := b.openLimited()
	if u := b.l.Usage(); u.Capacity <= 0 || u.Capacity > b.o.Capacity {
		b.Fatalf("Usage has a capacity of %d, and the option has %d", u.Capacity, b.o.Capacity)
	}
	var all []tier.Object
	for i := range 60 {
		o := object(fmt.Sprintf("%d", i), unit-unit*int64(i%3)/5)
		p := putOf(o)
		if i%2 == 1 {
			p.From, p.Bytes = bytes.NewReader(p.Bytes), nil
		}
		puts := []tier.Put{p}
		b.l.Put(background, puts)
		b.is("Put of "+show(o.Key), puts[0].Err, nil)
		all = append(all, o)
		b.get(o)
		u := b.l.Usage()
		if err := bounds(u); err != nil {
			b.Fatalf("%v", err)
		}
		var there []tier.Object
		for i, is := range b.there(all...) {
			if is {
				there = append(there, all[i])
			}
		}
		b.has(there...)
		if u.Evicted != -1 && u.Evicted != int64(len(all)-len(there)) {
			b.Fatalf("Usage has %d evicted objects, and %d have gone", u.Evicted, len(all)-len(there))
		}
		b.get(there...)
	}
	if b.isThere(all[0]) && b.isThere(all[1]) && b.isThere(all[2]) && b.l.Usage().Evicted == 0 {
		b.Fatalf("nothing has gone of %d objects of about %d bytes, and the capacity is %d", len(all), unit,
			b.o.Capacity)
	}
	for _, o := range all {
		if b.isThere(o) {
			b.delete(o)
		}
	}
	b.has()
	most := object("most", b.o.Capacity/16*13)
	b.put(most) // all of the room is there
	b.get(most)
	b.has(most)
}

// refusedEvictsNothing: an element that is refused for another reason takes no room.
func refusedEvictsNothing(b *bed) {
	unit := b.openLimited()
	there := b.fill("a", unit)
	before := b.usage(there...)
	puts := []tier.Put{
		{Object: tier.Object{Key: key(""), Size: unit}, Bytes: make([]byte, unit)},
		{Object: object("short", unit), Bytes: make([]byte, unit-1)},
		putOf(there[0]),
	}
	b.l.Put(background, puts)
	if puts[0].Err == nil || puts[1].Err == nil {
		b.Fatalf("Put of what is invalid: the errors are %v and %v", puts[0].Err, puts[1].Err)
	}
	b.is("Put of what is there", puts[2].Err, nil)
	b.has(there...)
	if after := b.usage(there...); after.Evicted != before.Evicted {
		b.Fatalf("%d objects went for what was not stored", after.Evicted-before.Evicted)
	}
	// A stream that fails may have cost objects, but leaves no room taken.
	for range 40 {
		puts := []tier.Put{{Object: object("broken", unit), From: bytes.NewReader(nil)}}
		b.l.Put(background, puts)
		if puts[0].Err == nil || errors.Is(puts[0].Err, tier.ErrFull) {
			b.Fatalf("Put of an empty stream: the error is %v", puts[0].Err)
		}
	}
	b.fill("b", unit)
	if n := len(b.list("")); n < len(there) { // whichever the level keeps
		b.Fatalf("%d objects had room, and %d have after streams that failed", len(there), n)
	}
}

// uses: a Get is a use, and a Stat is none. Objects in use stay, objects without a use are evicted.
func uses(b *bed) {
	for _, way := range []string{"own memory", "Into", "To"} {
		unit := b.openLimited()
		there := b.fill("a", unit)
		used := there[0]
		for i := range 3 * len(there) {
			for range 5 {
				gets := []tier.Get{{Key: used.Key}}
				switch way {
				case "Into":
					gets[0].Into = func(x tier.Object) ([]byte, error) { return make([]byte, x.Size), nil }
				case "To":
					gets[0].To = io.Discard
				}
				b.l.Get(background, gets)
				b.is("Get", gets[0].Err, nil)
			}
			b.put(object(fmt.Sprintf("b %d", i), unit))
			if !b.isThere(used) {
				b.Fatalf("an object that was read 5 times for each new object, with %s, has gone, after %d new ones",
					way, i+1)
			}
		}
	}
}

// statIsNoUse: the other half of uses.
func statIsNoUse(b *bed) {
	b.isNoUse("Stat", func(tier.Object) {})
}

// getWithoutUse: a Get for work of the caller's own does not keep an object longer.
func getWithoutUse(b *bed) {
	b.isNoUse("Get with NoUse", func(o tier.Object) {
		gets := []tier.Get{{Key: o.Key, NoUse: true}}
		b.l.Get(background, gets)
		b.is("Get with NoUse", gets[0].Err, nil)
	})
}

// isNoUse does something to an object of a full level again and again, after Stat has found it, uses others, and
// stores new ones: the object goes.
func (b *bed) isNoUse(what string, do func(tier.Object)) {
	b.Helper()
	unit := b.openLimited()
	there := b.fill("a", unit)
	looked, others := there[0], there[1:]
	look := func() bool {
		is := false
		for range 20 {
			if is = b.isThere(looked); is {
				do(looked)
			}
		}
		return is
	}
	for range 5 {
		b.get(others...)
		look()
	}
	for i := range 4 * len(there) {
		look()
		b.put(object(fmt.Sprintf("b %d", i), unit))
		for _, o := range others[:2] {
			if b.isThere(o) {
				b.get(o)
			}
		}
	}
	if look() {
		b.Fatalf("an object that nobody read, beside %s, is there after %d new ones", what, 4*len(there))
	}
}
