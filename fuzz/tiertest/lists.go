package tiertest

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ringcache/ringcache/tier"
)

// lists: a loop over a level may end early, begin again, change the level, and end with its context.
func lists(b *bed) {
	b.open(0)
	var objects []tier.Object
	for i := range 20 {
		o := object(fmt.Sprintf("%d", i), int64(i))
		o.Note = []byte(o.Name)
		objects = append(objects, o)
	}
	other := tier.Object{Key: tier.Key{Space: "t", Name: "0"}, Size: 5}
	b.put(append(objects, other)...)

	sequence := b.l.List(background, "s")
	for range 2 { // again
		n := 0
		for _, err := range sequence {
			b.is("List", err, nil)
			n++
		}
		if n != len(objects) {
			b.Fatalf("List of a space with %d objects has %d", len(objects), n)
		}
	}
	for stop := range 3 {
		n := 0
		for _, err := range b.l.List(background, "") {
			b.is("List", err, nil)
			if n++; n > stop {
				break
			}
		}
	}
	b.has(append(objects, other)...)

	ctx, cancel := context.WithCancel(background)
	defer cancel()
	n := 0
	var last error
	for _, err := range b.l.List(ctx, "") {
		if last != nil {
			b.Fatalf("List goes on after the error %v", last)
		}
		last = err
		n++
		cancel()
	}
	if last == nil && n != 21 {
		b.Fatalf("List whose context ended has %d of 21 objects, and no error", n)
	}
	if last != nil {
		b.is("List whose context ended", last, context.Canceled)
	}

	b.wait("List whose loop changes the level", func() {
		for o, err := range b.l.List(background, "s") {
			if err != nil {
				b.Errorf("List: %v", err)
				return
			}
			if errs := b.l.Delete(background, []tier.Key{o.Key}); errs[0] != nil {
				b.Errorf("Delete in a loop over List: %v", errs[0])
				return
			}
		}
	})
	b.has(other)
}

// listsWhileChanging: what is there all the time is in the list, once.
func listsWhileChanging(b *bed) {
	b.open(0)
	var stable []tier.Object
	for i := range 60 {
		stable = append(stable, object(fmt.Sprintf("stable %d", i), int64(i)))
	}
	b.put(stable...)
	coming := func(i int) tier.Object { return object(fmt.Sprintf("coming %d", i), int64(i%7)) }
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() {
		for i := 0; !stop.Load(); i++ {
			o := coming(i % 50)
			puts := []tier.Put{putOf(o)}
			b.l.Put(background, puts)
			err := puts[0].Err
			if err == nil {
				err = b.l.Delete(background, []tier.Key{o.Key})[0]
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	defer stop.Store(true)
	for range 30 {
		seen := map[tier.Key]int{}
		for o, err := range b.l.List(background, "s") {
			b.is("List beside changes", err, nil)
			seen[o.Key]++
			var i int
			if n, _ := fmt.Sscanf(o.Name, "coming %d", &i); n == 1 {
				if err := described(o, coming(i)); err != nil {
					b.Fatalf("List beside changes: %v", err)
				}
			}
		}
		for _, o := range stable {
			if seen[o.Key] != 1 {
				b.Fatalf("List beside changes has %s, which is there all the time, %d times", show(o.Key), seen[o.Key])
			}
		}
	}
	stop.Store(true)
	b.is("Put or Delete beside List", <-done, nil)
	b.has(stable...)
}
