package tiertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/tier"
)

// invisible: what is being written is in no answer but ErrPending, and is there at once when it is.
func invisible(b *bed) {
	b.open(0)
	o, other := object("a", 200_000), object("b", 10)
	b.put(other)
	g := newGate(content(o.Key, o.Size))
	puts := []tier.Put{{Object: o, From: g}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.l.Put(background, puts)
	}()
	b.until("Put begins", g.began)
	defer func() {
		select {
		case <-g.open:
		default:
			close(g.open)
		}
	}()
	found := b.l.Stat(background, []tier.Key{o.Key})[0].Err
	gets := []tier.Get{{Key: o.Key}}
	b.l.Get(background, gets)
	for what, err := range map[string]error{"Stat": found, "Get": gets[0].Err} {
		if !errors.Is(err, tier.ErrPending) && !errors.Is(err, tier.ErrNotFound) {
			b.Fatalf("%s of what is being written: the error is %v", what, err)
		}
	}
	if list := b.list(""); len(list) != 1 {
		b.Fatalf("List beside a Put that is not done has %d objects, and 1 is there", len(list))
	}
	if u := b.l.Usage(); u.Objects != 1 && u.Objects != -1 {
		b.Fatalf("Usage beside a Put that is not done has %d objects, and 1 is there", u.Objects)
	}
	b.get(other) // no caller waits
	close(g.open)
	b.until("Put", done)
	b.is("Put", puts[0].Err, nil)
	b.get(o, other)
	b.has(o, other)
}

// pending: who puts what another call is writing is told so.
func pending(b *bed) {
	b.open(0)
	o := object("a", 1000)
	g := newGate(content(o.Key, o.Size))
	puts := []tier.Put{{Object: o, From: g}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.l.Put(background, puts)
	}()
	b.until("Put begins", g.began)
	var second error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		second = b.try(o)
	}()
	select {
	case <-finished:
	case <-time.After(b.o.patience):
		close(g.open)
		b.Fatalf("Put of what another Put is writing waits for it")
	}
	found := b.l.Stat(background, []tier.Key{o.Key})[0].Err
	gets := []tier.Get{{Key: o.Key}}
	b.l.Get(background, gets)
	close(g.open)
	b.until("Put", done)
	b.is("Put", puts[0].Err, nil)
	b.is("Put of what another Put is writing", second, tier.ErrPending)
	b.is("Stat of what is being written", found, tier.ErrPending)
	b.is("Get of what is being written", gets[0].Err, tier.ErrPending)
	b.get(o)
	b.has(o)
}

// samePut: of many Puts of an object at a time, it is stored once.
func samePut(b *bed) {
	b.open(0)
	for round := range 10 {
		o := object(fmt.Sprintf("%d", round), 3000)
		var stored atomic.Int32
		b.together(8, func(i int) error {
			p := putOf(o)
			if i%2 == 0 {
				p.From, p.Bytes = bytes.NewReader(p.Bytes), nil
			}
			puts := []tier.Put{p}
			b.l.Put(background, puts)
			switch {
			case puts[0].Err == nil:
				stored.Add(1)
				gets := []tier.Get{{Key: o.Key}}
				b.l.Get(background, gets)
				if gets[0].Err != nil {
					return fmt.Errorf("Get behind a Put: %w", gets[0].Err)
				}
				return whole(gets[0].Object, gets[0].Bytes, o)
			case errors.Is(puts[0].Err, tier.ErrPending):
				return nil
			}
			return fmt.Errorf("one of many Puts of an object: %w", puts[0].Err)
		})
		if stored.Load() == 0 {
			b.Fatalf("8 Puts of an object at a time, and it is not stored")
		}
		b.has(o)
		b.delete(o)
	}
}

// fullTogether: the capacity holds while many goroutines put.
func fullTogether(b *bed) {
	unit := b.openLimited() / 2
	b.together(6, func(i int) error {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		for n := range 60 {
			if i == 0 {
				if err := bounds(b.l.Usage()); err != nil {
					return err
				}
			}
			o := object(fmt.Sprintf("%d %d", i, n), unit-int64(r.IntN(int(unit/2))))
			if n > 0 && r.IntN(2) == 0 {
				o.Parent = fmt.Sprintf("%d %d", i, n-1)
			}
			p := putOf(o)
			if n%3 == 0 {
				p.From, p.Bytes = bytes.NewReader(p.Bytes), nil
			}
			puts := []tier.Put{p}
			b.l.Put(background, puts)
			if err := puts[0].Err; err != nil && !errors.Is(err, tier.ErrFull) {
				return fmt.Errorf("Put beside others: %w", err)
			}
			gets := []tier.Get{{Key: o.Key}}
			b.l.Get(background, gets)
			if err := gets[0].Err; err == nil {
				if err := whole(gets[0].Object, gets[0].Bytes, o); err != nil {
					return err
				}
			} else if !errors.Is(err, tier.ErrNotFound) || errors.Is(err, tier.ErrCorrupt) {
				return fmt.Errorf("Get beside others: %w", err)
			}
			if err := bounds(b.l.Usage()); err != nil {
				return err
			}
		}
		return nil
	})
	b.deleteAll()
	most := object("most", b.o.Capacity/16*13)
	b.put(most)
	b.get(most)
}

// history: random calls, one at a time, do what a table of objects does.
func history(b *bed) {
	b.open(0)
	run := 0
	rapid.Check(b, func(t *rapid.T) {
		run++
		space := fmt.Sprintf("run %d", run)
		there := map[string]tier.Object{}
		defer func() {
			for _, o := range there {
				b.l.Delete(background, []tier.Key{o.Key})
			}
		}()
		names := rapid.SampledFrom([]string{"a", "A", "b/c", "b", "../d", "e\n", ""})
		draw := func() tier.Object {
			o := tier.Object{Key: tier.Key{Space: space, Name: names.Draw(t, "name")},
				Size: rapid.Int64Range(0, 5000).Draw(t, "size")}
			o.Note = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "note")
			o.Tenant = rapid.SampledFrom([]string{"", "t", "u"}).Draw(t, "tenant")
			if o.Name != "b" {
				o.Parent = rapid.SampledFrom([]string{"", "b"}).Draw(t, "parent")
			}
			return o
		}
		expect := func(what string, got, want error) {
			if want == nil && got != nil || !errors.Is(got, want) {
				t.Fatalf("%s: the error is %v, expected %v", what, got, want)
			}
		}
		answer := func(k tier.Key) error {
			if k.Name == "" {
				return fs.ErrInvalid
			}
			if _, ok := there[k.Name]; !ok {
				return tier.ErrNotFound
			}
			return nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				var puts []tier.Put
				var objects []tier.Object
				for range rapid.IntRange(1, 4).Draw(t, "elements") {
					o := draw()
					p := putOf(o)
					switch rapid.IntRange(0, 3).Draw(t, "way") {
					case 0:
						p.From, p.Bytes = bytes.NewReader(p.Bytes), nil
					case 1:
						if o.Size > 0 && rapid.Bool().Draw(t, "short") {
							p.From, p.Bytes = bytes.NewReader(p.Bytes[1:]), nil
						}
					}
					puts, objects = append(puts, p), append(objects, o)
				}
				short := make([]bool, len(puts))
				for i, p := range puts {
					r, ok := p.From.(*bytes.Reader)
					short[i] = ok && int64(r.Len()) != p.Object.Size
				}
				b.l.Put(background, puts)
				for i, p := range puts {
					_, isThere := there[objects[i].Name]
					switch {
					case objects[i].Name == "":
						expect("Put", p.Err, fs.ErrInvalid)
					case short[i] && !isThere:
						if p.Err == nil {
							t.Fatalf("Put of a short stream: no error")
						}
					case short[i]: // may be read, or not
					default:
						expect("Put", p.Err, nil)
						if !isThere {
							there[objects[i].Name] = objects[i]
						}
					}
				}
			},
			"get": func(t *rapid.T) {
				gets := make([]tier.Get, rapid.IntRange(1, 4).Draw(t, "elements"))
				var to [4]bytes.Buffer
				for i := range gets {
					gets[i].Key = tier.Key{Space: space, Name: names.Draw(t, "name")}
					switch rapid.IntRange(0, 2).Draw(t, "way") {
					case 0:
						gets[i].To = &to[i]
					case 1:
						gets[i].Into = func(x tier.Object) ([]byte, error) { return make([]byte, x.Size), nil }
					}
				}
				b.l.Get(background, gets)
				for i, g := range gets {
					expect("Get", g.Err, answer(g.Key))
					if g.Err != nil {
						continue
					}
					got := g.Bytes
					if g.To != nil {
						got = to[i].Bytes()
					}
					if err := whole(g.Object, got, there[g.Key.Name]); err != nil {
						t.Fatalf("Get: %v", err)
					}
				}
			},
			"delete": func(t *rapid.T) {
				keys := []tier.Key{{Space: space, Name: names.Draw(t, "name")},
					{Space: space, Name: names.Draw(t, "name")}}
				errs := b.l.Delete(background, keys)
				for i, k := range keys {
					expect("Delete", errs[i], answer(k))
					delete(there, k.Name)
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for o, err := range b.l.List(background, space) {
					expect("List", err, nil)
					if err := described(o, there[o.Name]); err != nil {
						t.Fatalf("List: %v", err)
					}
					n++
				}
				if u := b.l.Usage(); n != len(there) || u.Objects != -1 && u.Objects != int64(n) {
					t.Fatalf("List has %d objects, Usage has %d, and %d are there", n, u.Objects, len(there))
				}
			},
		})
	})
	b.has()
}

// histories: random calls of several goroutines, with eviction where the level has a capacity. Since objects
// never change, a Get returns what was put, or a miss; an object that was not deleted or evicted is there.
func histories(b *bed) {
	for round := range b.o.Histories {
		size := int64(2000)
		if b.o.Unlimited || round%2 == 0 {
			b.open(0)
		} else {
			size = b.openLimited() / 2
		}
		limited := !b.o.Unlimited && round%2 == 1
		named := func(n int) tier.Object {
			o := object(fmt.Sprintf("%d", n), size+int64(n))
			if n > 0 {
				o.Parent = fmt.Sprintf("%d", (n-1)/2)
			}
			o.Note = []byte(o.Name)
			return o
		}
		kept := object("kept", 100)
		if !limited {
			b.put(kept)
		}
		b.together(5, func(g int) error {
			r := rand.New(rand.NewPCG(uint64(round), uint64(g)))
			own := object(fmt.Sprintf("own %d", g), 300) // of this goroutine only
			hasOwn := false
			for range 100 {
				o := named(r.IntN(40))
				var err error
				switch r.IntN(7) {
				case 0, 1:
					p := putOf(o)
					if r.IntN(2) == 0 {
						p.From, p.Bytes = bytes.NewReader(p.Bytes), nil
					}
					puts := []tier.Put{p}
					b.l.Put(background, puts)
					if err = puts[0].Err; errors.Is(err, tier.ErrPending) || limited && errors.Is(err, tier.ErrFull) {
						err = nil
					}
				case 2, 3:
					gets := []tier.Get{{Key: o.Key}, {Key: kept.Key}}
					b.l.Get(background, gets)
					if err = absentOr(gets[0].Err); err == nil && gets[0].Err == nil {
						err = whole(gets[0].Object, gets[0].Bytes, o)
					}
					if err == nil && !limited {
						if err = gets[1].Err; err == nil {
							err = whole(gets[1].Object, gets[1].Bytes, kept)
						}
					}
				case 4:
					f := b.l.Stat(background, []tier.Key{o.Key})[0]
					if err = absentOr(f.Err); err == nil && f.Err == nil {
						err = described(f.Object, o)
					}
				case 5:
					err = absentOr(b.l.Delete(background, []tier.Key{o.Key})[0])
				case 6:
					if limited {
						err = bounds(b.l.Usage())
						break
					}
					if hasOwn {
						err = b.l.Delete(background, []tier.Key{own.Key})[0]
					} else {
						err = b.try(own)
					}
					hasOwn = !hasOwn
					if f := b.l.Stat(background, []tier.Key{own.Key})[0]; err == nil && (f.Err == nil) != hasOwn {
						err = fmt.Errorf("Stat of what only this goroutine puts and deletes: %w, and it is there: %v",
							errOr(f.Err), hasOwn)
					}
				}
				if err != nil {
					return fmt.Errorf("beside other goroutines, object %s: %w", show(o.Key), err)
				}
			}
			return nil
		})
		b.deleteAll()
	}
}

// absentOr returns an error that is no plain miss.
func absentOr(err error) error {
	if errors.Is(err, tier.ErrCorrupt) || !errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrPending) {
		return err
	}
	return nil
}
