package tiertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/tier"
)

// empty: a level begins without objects, and answers for what it does not have.
func empty(b *bed) {
	b.open(0)
	name := b.l.Name()
	if again := b.l.Name(); name == "" || again != name {
		b.Fatalf("the name is %q, and %q when asked again", name, again)
	}
	b.has()
	b.gone(object("a", 0))
	b.miss("Delete", b.l.Delete(background, []tier.Key{key("a")})[0])
	if n := len(b.l.Stat(background, nil)) + len(b.l.Delete(background, nil)); n != 0 {
		b.Fatalf("an empty batch has %d answers", n)
	}
	b.l.Get(background, nil)
	b.l.Put(background, nil)
	b.has()
}

// batches: each element has its own answer, in its place.
func batches(b *bed) {
	b.open(0)
	objects := []tier.Object{object("a", 10), object("b", 2000), object("c", 0)}
	b.put(objects[0], objects[2])
	b.put(objects[1])
	gets := []tier.Get{{Key: key("x")}, {Key: key("b")}, {Key: key("")}, {Key: key("a")}, {Key: key("y")},
		{Key: key("b")}, {Key: key("c")}}
	want := []int{-1, 1, -2, 0, -1, 1, 2}
	keys := make([]tier.Key, len(gets))
	for i, g := range gets {
		keys[i] = g.Key
	}
	asked := slices.Clone(keys)
	b.l.Get(background, gets)
	for i, g := range gets {
		if g.Key != asked[i] {
			b.Fatalf("Get changed the key of element %d from %v to %v", i, asked[i], g.Key)
		}
		switch want[i] {
		case -1:
			b.miss(fmt.Sprintf("element %d of Get", i), g.Err)
		case -2:
			b.is(fmt.Sprintf("element %d of Get", i), g.Err, fs.ErrInvalid)
		default:
			b.is(fmt.Sprintf("element %d of Get", i), g.Err, nil)
			if err := whole(g.Object, g.Bytes, objects[want[i]]); err != nil {
				b.Fatalf("element %d of Get: %v", i, err)
			}
		}
	}
	found := b.l.Stat(background, keys)
	if len(found) != len(keys) {
		b.Fatalf("Stat of %d keys has %d answers", len(keys), len(found))
	}
	for i, f := range found {
		switch want[i] {
		case -1:
			b.miss(fmt.Sprintf("element %d of Stat", i), f.Err)
		case -2:
			b.is(fmt.Sprintf("element %d of Stat", i), f.Err, fs.ErrInvalid)
		default:
			b.is(fmt.Sprintf("element %d of Stat", i), f.Err, nil)
			if err := described(f.Object, objects[want[i]]); err != nil {
				b.Fatalf("element %d of Stat: %v", i, err)
			}
		}
	}
	if !slices.Equal(keys, asked) {
		b.Fatalf("Stat changed the keys %v to %v", asked, keys)
	}
	keys = []tier.Key{key("x"), key("b"), key(""), key("b"), key("a")}
	asked = slices.Clone(keys)
	errs := b.l.Delete(background, keys)
	if len(errs) != 5 {
		b.Fatalf("Delete of 5 keys has %d answers", len(errs))
	}
	if !slices.Equal(keys, asked) {
		b.Fatalf("Delete changed the keys %v to %v", asked, keys)
	}
	b.miss("element 0 of Delete", errs[0])
	b.is("element 1 of Delete", errs[1], nil)
	b.is("element 2 of Delete", errs[2], fs.ErrInvalid)
	b.miss("element 3 of Delete, the same again", errs[3])
	b.is("element 4 of Delete", errs[4], nil)
	b.has(objects[2])
}

// largeBatch: a batch may have many elements.
func largeBatch(b *bed) {
	b.open(0)
	var objects []tier.Object
	for i := range 700 {
		objects = append(objects, object(fmt.Sprintf("%04d", i), int64(i%40)))
	}
	b.put(objects...)
	b.get(objects...)
	b.has(objects...)
	keys := make([]tier.Key, len(objects))
	for i, o := range objects {
		keys[i] = o.Key
	}
	for i, err := range b.l.Delete(background, keys) {
		b.is(fmt.Sprintf("element %d of Delete", i), err, nil)
	}
	b.has()
}

// putAgain: what is there stays as it is, and that is a success.
func putAgain(b *bed) {
	b.open(0)
	o := object("a", 1000)
	o.Note, o.Tenant, o.Cost, o.Parent = []byte("first"), "t", 7, "p"
	b.put(o)
	before := b.usage(o)
	other := object("a", 1000)
	other.Note = []byte("second")
	longer := object("a", 5000)
	again := func() []tier.Put {
		return []tier.Put{
			putOf(o),
			{Object: other, Bytes: make([]byte, 1000)},
			{Object: longer, Bytes: make([]byte, 5000)},
			{Object: o, From: bytes.NewReader(content(o.Key, o.Size))},
			{Object: other, From: bytes.NewReader(make([]byte, 1000))},
		}
	}
	for i := range again() {
		puts := again()[i : i+1]
		b.l.Put(background, puts)
		b.is(fmt.Sprintf("Put %d of what is there", i), puts[0].Err, nil)
		b.get(o)
		b.has(o)
	}
	for i, p := range again() {
		puts := []tier.Put{p, putOf(o)}
		b.l.Put(background, puts)
		b.is(fmt.Sprintf("Put %d of what is there", i), errors.Join(puts[0].Err, puts[1].Err), nil)
		b.get(o)
	}
	if after := b.usage(o); after.Bytes != before.Bytes || after.Evicted != before.Evicted {
		b.Fatalf("Put of what is there changed Usage from %+v to %+v", before, after)
	}
	twice, second := object("b", 30), object("b", 40)
	second.Note = []byte("second")
	puts := []tier.Put{putOf(twice), putOf(second)} // in the order of the batch
	b.l.Put(background, puts)
	b.is("Put of a key twice in a batch", errors.Join(puts[0].Err, puts[1].Err), nil)
	b.get(o, twice)
	b.has(o, twice)
	b.delete(o)
	b.has(twice)
	b.put(object("a", 5000)) // after Delete it is another object's key
	b.get(object("a", 5000))
	b.has(object("a", 5000), twice)
}

// badObjects returns one object for each rule of Validate.
func badObjects() map[string]tier.Object {
	set := func(change func(*tier.Object)) tier.Object {
		o := object("bad", 10)
		change(&o)
		return o
	}
	return map[string]tier.Object{
		"no name":         set(func(o *tier.Object) { o.Name = "" }),
		"long name":       set(func(o *tier.Object) { o.Name = strings.Repeat("n", tier.MaxName+1) }),
		"zero in name":    set(func(o *tier.Object) { o.Name = "a\x00b" }),
		"long space":      set(func(o *tier.Object) { o.Space = strings.Repeat("s", tier.MaxSpace+1) }),
		"zero in space":   set(func(o *tier.Object) { o.Space = "\x00" }),
		"long parent":     set(func(o *tier.Object) { o.Parent = strings.Repeat("p", tier.MaxName+1) }),
		"zero in parent":  set(func(o *tier.Object) { o.Parent = "p\x00" }),
		"its own parent":  set(func(o *tier.Object) { o.Parent = "bad" }),
		"long tenant":     set(func(o *tier.Object) { o.Tenant = strings.Repeat("t", tier.MaxTenant+1) }),
		"zero in tenant":  set(func(o *tier.Object) { o.Tenant = "\x00t" }),
		"negative size":   set(func(o *tier.Object) { o.Size = -1 }),
		"negative cost":   set(func(o *tier.Object) { o.Cost = -1 }),
		"too long a note": set(func(o *tier.Object) { o.Note = make([]byte, tier.MaxNote+1) }),
	}
}

// invalid: what can't be named or described is refused, alone.
func invalid(b *bed) {
	b.open(0)
	good := []tier.Object{object("a", 100), object("b", 5000)}
	for what, bad := range badObjects() {
		puts := []tier.Put{putOf(good[0]), {Object: bad, Bytes: make([]byte, max(bad.Size, 0))}, putOf(good[1])}
		b.l.Put(background, puts)
		b.is("Put beside an object with "+what, errors.Join(puts[0].Err, puts[2].Err), nil)
		b.is("Put of an object with "+what, puts[1].Err, fs.ErrInvalid)
		puts = []tier.Put{{Object: bad, From: bytes.NewReader(make([]byte, max(bad.Size, 0)))}}
		b.l.Put(background, puts)
		b.is("Put of a stream of an object with "+what, puts[0].Err, fs.ErrInvalid)
		b.has(good...)
		if bad.Key.Validate() == nil {
			b.gone(bad)
			continue
		}
		gets := []tier.Get{{Key: good[0].Key}, {Key: bad.Key}, {Key: good[1].Key}}
		b.l.Get(background, gets)
		b.is("Get beside a key with "+what, errors.Join(gets[0].Err, gets[2].Err), nil)
		b.is("Get of a key with "+what, gets[1].Err, fs.ErrInvalid)
		found := b.l.Stat(background, []tier.Key{good[0].Key, bad.Key, good[1].Key})
		b.is("Stat beside a key with "+what, errors.Join(found[0].Err, found[2].Err), nil)
		b.is("Stat of a key with "+what, found[1].Err, fs.ErrInvalid)
		errs := b.l.Delete(background, []tier.Key{key("absent"), bad.Key})
		b.miss("Delete beside a key with "+what, errs[0])
		b.is("Delete of a key with "+what, errs[1], fs.ErrInvalid)
	}
	b.get(good...)
	b.has(good...)
}
