package tiertest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/ringcache/ringcache/tier"
)

func stringOf(name string, i int) string { return fmt.Sprintf("%s %d", name, i) }

// pinnedStays: what is pinned does not go for room, and does not move.
func pinnedStays(b *bed) {
	unit := b.openLimited()
	there := b.fill("a", unit)
	l := b.lease("l")
	pinned := []tier.Object{there[0], there[2]}
	placed := b.pin(l, pinned...)
	for i := range 60 {
		b.put(object(stringOf("b", i), unit))
		for j, o := range pinned {
			if err := whole(placed[j].Object, placed[j].Bytes, o); err != nil {
				b.Fatalf("what is pinned, after %d other objects: %v", i+1, err)
			}
		}
	}
	b.get(pinned...)
	for i, p := range b.pin(l, pinned...) {
		if p.Offset != placed[i].Offset {
			b.Fatalf("%s was pinned at offset %d, and is at %d", show(p.Object.Key), placed[i].Offset, p.Offset)
		}
	}
	b.state(l, pinned, nil)
	l.Release()
	b.put(object("press", b.o.Capacity/16*15+1))
	b.gone(pinned...) // now they can go
	b.free()
}

// pinIsUse: Pin counts as a use.
func pinIsUse(b *bed) {
	unit := b.openLimited()
	there := b.fill("a", unit)
	used := there[0]
	l := b.lease("l")
	for i := range 3 * len(there) {
		for range 5 {
			b.pin(l, used)
			l.Unpin([]tier.Key{used.Key})
		}
		b.put(object(stringOf("b", i), unit))
		if !b.isThere(used) {
			b.Fatalf("an object that was pinned 5 times for each new object has gone, after %d new ones", i+1)
		}
	}
}

// pinWithoutUse: pins of a lease with NoUse keep an object only as long as they last.
func pinWithoutUse(b *bed) {
	b.isNoUse("pins of a lease with NoUse", func(o tier.Object) {
		l, err := b.memory().Lease(background, tier.LeaseOptions{ID: "l", Owner: "owner", NoUse: true})
		b.is("Lease", err, nil)
		b.pin(l, o)
		l.Unpin([]tier.Key{o.Key})
	})
}

// fullOfPins: with everything pinned there is no room, and nothing is lost.
func fullOfPins(b *bed) {
	unit := b.openLimited()
	there := b.fill("a", unit)
	l := b.lease("l")
	b.pin(l, there...)
	for i := 0; ; i++ { // a level may have evicted more than it had to
		o := object(stringOf("more", i), unit)
		if b.try(o) != nil {
			break
		}
		b.pin(l, o)
		if there = append(there, o); i > 100 {
			b.Fatalf("%d objects of %d bytes are pinned, and the capacity is %d", len(there), unit, b.o.Capacity)
		}
	}
	evicted := b.l.Usage().Evicted
	for i := range 3 {
		o := object("no room", unit)
		b.is("Put with everything pinned", b.try(o), tier.ErrFull)
		b.gone(o)
		b.each("Reserve with everything pinned",
			l.Reserve([]tier.Object{o, there[0], child("c", there[0].Name, unit)}), tier.ErrFull, tier.ErrExists,
			tier.ErrFull)
		b.gone(o)
		b.has(there...)
		b.get(there...)
		b.state(l, there, nil)
		if now := b.l.Usage().Evicted; now != evicted {
			b.Fatalf("%d objects have gone, and all are pinned", now-evicted)
		}
		// One is given up, and there is room for one.
		free := there[i]
		l.Unpin([]tier.Key{free.Key})
		anew := object(stringOf("new", i), unit)
		b.put(anew)
		b.gone(free)
		there[i] = anew
		evicted++
		b.pin(l, anew)
		b.has(there...)
	}
	b.get(there...)
}

// fullOfReservations: reservations take room, which Abort and the end of the lease give back.
func fullOfReservations(b *bed) {
	unit := b.openLimited()
	there := b.fill("a", unit)
	l := b.lease("l")
	for round := range 3 {
		var reserved []tier.Object
		for i := 0; ; i++ {
			o := object(stringOf("r", i), unit)
			p := l.Reserve([]tier.Object{o})
			if err := bounds(b.l.Usage()); err != nil {
				b.Fatalf("%v", err)
			}
			if p[0].Err != nil {
				b.is("Reserve in a full level", p[0].Err, tier.ErrFull)
				break
			}
			if reserved = append(reserved, o); len(reserved) > 100 {
				b.Fatalf("100 objects of %d bytes are reserved, and the capacity is %d", unit, b.o.Capacity)
			}
		}
		if len(reserved) < len(there) {
			b.Fatalf("%d objects had room, and %d are reserved", len(there), len(reserved))
		}
		b.state(l, nil, reserved)
		if u := b.l.Usage(); round == 0 && u.Evicted < int64(len(there)) {
			b.Fatalf("Usage has %d evicted objects, and reservations took the room of %d", u.Evicted, len(there))
		}
		b.is("Put beside reservations of everything", b.try(object("no room", unit)), tier.ErrFull)
		b.all("Abort", l.Abort([]tier.Key{reserved[0].Key}), 1, nil)
		b.put(object("room", unit))
		b.get(object("room", unit))
		b.delete(object("room", unit))
		b.gone(reserved[0])
		l.Release()
		b.has()
		b.free()
		l = b.lease("l")
	}
	for _, size := range []int64{b.o.Capacity + 1, 1 << 40, math.MaxInt64} {
		b.each("Reserve of what is too large",
			l.Reserve([]tier.Object{object("a", 10), object("huge", size), object("b", 10)}), nil, tier.ErrTooLarge,
			nil)
		b.all("Abort", l.Abort([]tier.Key{key("a"), key("b")}), 2, nil)
	}
	b.has()
}

// pinnedChildren: what a lease has keeps its ancestors.
func pinnedChildren(b *bed) {
	for _, how := range []string{"pinned", "reserved"} {
		unit := b.openLimited()
		family := chain("chain", 4, unit)
		l := b.lease("l")
		if how == "pinned" {
			b.put(family...)
			b.pin(l, family[3])
		} else {
			b.put(family[:3]...)
			write(b.reserve(l, family[3])...)
		}
		for i := range 40 {
			b.put(object(stringOf("other", i), unit))
			for j, is := range b.there(family[:3]...) {
				if !is {
					b.Fatalf("ancestor %d of what is %s has gone", j, how)
				}
			}
		}
		if how == "reserved" {
			b.commit(l, family[3])
		}
		b.get(family...)
		b.delete(family[0]) // whatever its children
		b.get(family[3])
		b.put(family[0])
		l.Release()
		b.press(family, family[3:], unit)
	}
}

// fullOfAncestors: a reservation costs none of its ancestors.
func fullOfAncestors(b *bed) {
	unit := b.openLimited()
	l := b.lease("l")
	var there []tier.Object
	for i := 0; ; i++ {
		o := object("0", unit)
		if i > 0 {
			o = child(fmt.Sprint(i), fmt.Sprint(i-1), unit)
		}
		p := l.Reserve([]tier.Object{o})
		if p[0].Err != nil {
			b.is(fmt.Sprintf("Reserve of the child of a chain of %d", i), p[0].Err, tier.ErrFull)
			break
		}
		write(p...)
		b.commit(l, o)
		l.Unpin([]tier.Key{o.Key})
		if there = append(there, o); i > 100 {
			b.Fatalf("a chain of %d objects of %d bytes is there, and the capacity is %d", i, unit, b.o.Capacity)
		}
	}
	b.has(there...)
	b.get(there...)
	// With the leaf pinned, nothing can go: not even for an unrelated object.
	b.pin(l, there[len(there)-1])
	b.is("Put with a pinned leaf and its ancestors only", b.try(object("unrelated", unit)), tier.ErrFull)
	b.has(there...)
	l.Unpin([]tier.Key{there[len(there)-1].Key})
	b.put(object("unrelated", unit))
	b.rooted(there)
}

// inPlace: the bytes of an object are at its offset, for every process that maps the segment.
func inPlace(b *bed) {
	b.open(0)
	size := b.memory().Segment().Size
	l := b.lease("l")
	var objects []tier.Object
	for i := range 30 {
		objects = append(objects, object(fmt.Sprint(i), int64(i*i*7)))
	}
	b.put(objects[:15]...)
	placed := append(b.pin(l, objects[:15]...), b.reserve(l, objects[15:]...)...)
	for i, p := range placed {
		if p.Offset > uint64(size) || p.Offset+uint64(objects[i].Size) > uint64(size) {
			b.Fatalf("%s is at offset %d with %d bytes, and the segment has %d", show(objects[i].Key), p.Offset,
				objects[i].Size, size)
		}
	}
	order := slices.Clone(placed)
	slices.SortFunc(order, func(x, y tier.Placed) int { return int(min(max(int64(x.Offset)-int64(y.Offset), -1), 1)) })
	for i := 1; i < len(order); i++ {
		if x, y := order[i-1], order[i]; x.Object.Size > 0 && y.Object.Size > 0 &&
			x.Offset+uint64(x.Object.Size) > y.Offset {
			b.Fatalf("%s has the bytes %d to %d, and %s begins at %d", show(x.Object.Key), x.Offset,
				x.Offset+uint64(x.Object.Size), show(y.Object.Key), y.Offset)
		}
	}
	for i, p := range placed {
		if objects[i].Size == 0 {
			continue
		}
		bytes := b.o.At(b, b.l, p.Offset, objects[i].Size)
		if int64(len(bytes)) != objects[i].Size {
			b.Fatalf("the option At returned %d bytes, asked for %d", len(bytes), objects[i].Size)
		}
		if i >= 15 && i%2 == 1 {
			write(p)
		} else if i >= 15 {
			copy(bytes, content(objects[i].Key, objects[i].Size)) // as another process would
		}
		if err := whole(p.Object, p.Bytes, objects[i]); err != nil {
			b.Fatalf("what was written at the offset in the segment is not in Bytes: %v", err)
		}
		if err := whole(p.Object, bytes, objects[i]); err != nil {
			b.Fatalf("at the offset in the segment: %v", err)
		}
	}
	b.commit(l, objects[15:]...)
	b.get(objects...)
	b.has(objects...)
}

// commitOrder: no reader sees a child without its parent while a batch is committed.
func commitOrder(b *bed) {
	b.open(0)
	for round := range 20 {
		objects := chain(fmt.Sprint(round), 6, 100)
		l := b.lease("l")
		write(b.reserve(l, objects...)...)
		keys := keysOf(objects)
		slices.Reverse(keys) // children first: the later answers are of older objects
		var committed atomic.Bool
		b.together(3, func(i int) error {
			if i == 0 {
				defer committed.Store(true)
				return errors.Join(l.Commit(keysOf(objects))...)
			}
			for last := false; !last; {
				last = committed.Load()
				child := false
				for j, f := range b.l.Stat(background, keys) {
					if f.Err != nil && !errors.Is(f.Err, tier.ErrPending) {
						return fmt.Errorf("Stat beside Commit: %w", f.Err)
					}
					if child && f.Err != nil {
						return fmt.Errorf("a child was there before its parent %s: %w", show(keys[j]), f.Err)
					}
					child = child || f.Err == nil
				}
			}
			return nil
		})
		b.get(objects...)
		l.Release()
	}
}
