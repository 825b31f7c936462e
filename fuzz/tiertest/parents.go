package tiertest

import (
	"fmt"

	"github.com/ringcache/ringcache/tier"
)

// chain returns objects each of which is the parent of the next one.
func chain(name string, n int, size int64) []tier.Object {
	out := []tier.Object{object(name+" 0", size)}
	for i := 1; i < n; i++ {
		out = append(out, child(fmt.Sprintf("%s %d", name, i), out[i-1].Name, size))
	}
	return out
}

// rooted expects that no child is there without its parent.
func (b *bed) rooted(objects []tier.Object) (left int) {
	b.Helper()
	there := map[tier.Key]bool{}
	for i, is := range b.there(objects...) {
		there[objects[i].Key] = is
		if is {
			left++
		}
	}
	for _, o := range objects {
		if parent, ok := o.ParentKey(); ok && there[o.Key] && !there[parent] {
			b.Fatalf("%s is there, and its parent %s has gone", show(o.Key), show(parent))
		}
	}
	return left
}

// press puts objects until others have to go, and one that needs most of the capacity.
func (b *bed) press(family []tier.Object, hot []tier.Object, unit int64) {
	b.Helper()
	for i := range 24 {
		for _, o := range hot {
			if b.isThere(o) {
				b.get(o)
			}
		}
		b.put(object(fmt.Sprintf("press %d", i), unit))
		b.rooted(family)
	}
	b.put(object("press", b.o.Capacity/16*13))
	if n := b.rooted(family); n > 3 {
		b.Fatalf("%d objects of %d bytes are there beside one of %d bytes, and the capacity is %d", n, unit,
			b.o.Capacity/16*13, b.o.Capacity)
	}
	if err := bounds(b.l.Usage()); err != nil {
		b.Fatalf("%v", err)
	}
}

// childrenFirst: a parent goes after its children, though they are used and it is not.
func childrenFirst(b *bed) {
	unit := b.openLimited()
	var family, hot []tier.Object
	for i := range 3 {
		c := chain(fmt.Sprintf("chain %d", i), 4, unit)
		family = append(family, c...)
		hot = append(hot, c[3])
	}
	b.put(family...)
	b.has(family...)
	b.press(family, hot, unit)
}

// branches: a parent stays until the last of its children has gone.
func branches(b *bed) {
	unit := b.openLimited()
	root := object("root", unit)
	b.put(root)
	family := []tier.Object{root}
	for i := range 40 {
		o := child(fmt.Sprintf("leaf %d", i), "root", unit)
		b.put(o) // other leaves can go
		family = append(family, o)
		if !b.isThere(root) {
			b.Fatalf("the parent of what was stored has gone, and other children could have")
		}
		if !b.isThere(o) {
			b.Fatalf("%s has gone with its own Put", show(o.Key))
		}
	}
	b.press(family, family[len(family)-3:], unit)
}

// lateParents: a parent that comes after its child, or comes back, is its parent all the same.
func lateParents(b *bed) {
	unit := b.openLimited()
	late, lateChild := object("late", unit), child("late child", "late", unit)
	back, backChild := object("back", unit), child("back child", "back", unit)
	b.put(lateChild, back, backChild)
	b.put(late)
	b.delete(back)
	b.get(backChild)
	b.put(back)
	family := []tier.Object{late, lateChild, back, backChild}
	b.has(family...)
	b.press(family, []tier.Object{lateChild, backChild}, unit)
}

// childlessGoes: a parent whose children were deleted is an object like others, and so is a child without
// parent.
func childlessGoes(b *bed) {
	unit := b.openLimited()
	for i := range 40 {
		parent, c := object(fmt.Sprintf("parent %d", i), unit),
			child(fmt.Sprintf("child %d", i), fmt.Sprintf("parent %d", i), unit)
		b.put(parent, c)
		if i%2 == 0 {
			b.delete(c)
		} else {
			b.delete(parent)
			b.get(c)
		}
	}
	for i := range 40 {
		b.put(child(fmt.Sprintf("orphan %d", i), fmt.Sprintf("never %d", i), unit))
	}
	most := object("most", b.o.Capacity/16*13)
	b.put(most)
	b.get(most)
}

// ancestorsStay: what is stored costs none of its ancestors. When only they are left, there is no room.
func ancestorsStay(b *bed) {
	unit := b.openLimited()
	var there []tier.Object
	for i := 0; ; i++ {
		o := object("0", unit)
		if i > 0 {
			o = child(fmt.Sprintf("%d", i), fmt.Sprintf("%d", i-1), unit)
		}
		if err := b.try(o); err != nil {
			b.is(fmt.Sprintf("Put of the child of a chain of %d", i), err, tier.ErrFull)
			b.gone(o)
			break
		}
		there = append(there, o)
		b.has(there...)
		if i > 100 {
			b.Fatalf("a chain of %d objects of %d bytes is there, and the capacity is %d", i, unit, b.o.Capacity)
		}
	}
	b.get(there...)
	last := there[len(there)-1]
	puts := []tier.Put{putOf(child("another", last.Name, unit)), putOf(there[1]),
		putOf(child("third", last.Name, 2*unit))}
	b.l.Put(background, puts)
	b.is("Put of a child, with ancestors only in the level", puts[0].Err, tier.ErrFull)
	b.is("Put of what is there", puts[1].Err, nil)
	b.is("Put of a child, with ancestors only in the level", puts[2].Err, tier.ErrFull)
	b.has(there...)
	b.get(there...)
	if u := b.l.Usage(); u.Evicted > 0 {
		b.Fatalf("%d objects have gone, and all are ancestors of what was stored", u.Evicted)
	}

	// A child of the middle costs leaves, and not the way to it.
	middle := len(there) / 2
	b.put(child("branch", there[middle].Name, unit))
	left := b.there(there...)
	for i, is := range left {
		if i <= middle && !is {
			b.Fatalf("ancestor %d of %d of what was stored has gone", i, middle)
		}
	}
	if left[len(left)-1] {
		b.Fatalf("the leaf of a full chain is there, and another object was stored")
	}
	b.rooted(there)
	b.put(object("unrelated", unit)) // no object is its ancestor
	b.rooted(there)
}

// ancestorsBeforeOthers: other objects go, though they are used and the ancestors are not.
func ancestorsBeforeOthers(b *bed) {
	unit := b.openLimited()
	family := chain("chain", 4, unit)
	b.put(family...)
	others := b.fill("other", unit)
	hot := func() {
		for _, o := range others {
			if b.isThere(o) {
				b.get(o)
			}
		}
	}
	hot()
	for _, o := range family {
		if !b.isThere(o) {
			b.put(o)
		}
	}
	next := chain("chain", 9, unit)[4:]
	for _, o := range next {
		hot()
		b.put(o)
		family = append(family, o)
		for i, is := range b.there(family...) {
			if !is {
				b.Fatalf("ancestor %d of what was stored has gone, and others could have", i)
			}
		}
	}
}

// chainAsBatch: of a chain that has no room, the first ones are stored, and the others refused.
func chainAsBatch(b *bed) {
	unit := b.openLimited()
	objects := chain("chain", 40, unit)
	var puts []tier.Put
	for _, o := range objects {
		puts = append(puts, putOf(o))
	}
	b.l.Put(background, puts)
	n := 0
	for n < len(puts) && puts[n].Err == nil {
		n++
	}
	if n < 4 || n == len(puts) {
		b.Fatalf("%d of a chain of %d objects of %d bytes were stored, and the capacity is %d", n, len(puts), unit,
			b.o.Capacity)
	}
	b.is("Put of the first of a chain that has no room", puts[n].Err, tier.ErrFull)
	for i, p := range puts {
		if p.Err != nil {
			b.is(fmt.Sprintf("element %d of Put", i), p.Err, tier.ErrFull)
			b.gone(objects[i])
		}
	}
	// Those behind the first that was refused have no parent in the level: they may have cost the others.
	b.rooted(objects[:n])
	if err := bounds(b.l.Usage()); err != nil {
		b.Fatalf("%v", err)
	}
}

// spacesOfParents: a name in another space is no parent.
func spacesOfParents(b *bed) {
	unit := b.openLimited()
	for i := range 40 {
		o := child(fmt.Sprintf("%d", i), fmt.Sprintf("%d", i-1), unit)
		o.Space = fmt.Sprintf("space %d", i%7)
		b.put(o)
	}
	if err := bounds(b.l.Usage()); err != nil {
		b.Fatalf("%v", err)
	}
}

// circles: parents that go round in a circle make nothing hang, and can be deleted.
func circles(b *bed) {
	unit := b.openLimited()
	circle := []tier.Object{child("a", "b", unit), child("b", "a", unit), child("c", "e", unit),
		child("d", "c", unit), child("e", "d", unit)}
	b.wait("Put of a circle of parents", func() { b.l.Put(background, nil) })
	for _, o := range circle {
		var err error
		b.wait("Put of a circle of parents", func() { err = b.try(o) })
		b.is("Put of a circle of parents", err, nil)
	}
	b.get(circle...)
	for i := range 40 {
		o := object(fmt.Sprintf("other %d", i), unit)
		b.wait("Put beside a circle of parents", func() { _ = b.try(o) })
	}
	for _, o := range circle {
		errs := b.l.Delete(background, []tier.Key{o.Key})
		if errs[0] != nil {
			b.miss("Delete of one of a circle", errs[0])
		}
		b.gone(o)
	}
	most := object("most", b.o.Capacity/16*13)
	b.put(most)
	b.get(most)
}
