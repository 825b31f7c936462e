package tiertest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// gatedWriter waits with its first bytes.
type gatedWriter struct {
	bytes.Buffer
	g *gate
}

func (w *gatedWriter) Write(p []byte) (int, error) {
	if w.Len() == 0 && len(p) > 1 {
		w.Buffer.Write(p[:1])
		w.g.wait()
		n, err := w.Buffer.Write(p[1:])
		return n + 1, err
	}
	w.g.wait()
	return w.Buffer.Write(p)
}

// deletedWhileRead: what a Get has begun to read is whole, or a miss, though the object goes and others take
// its room.
func deletedWhileRead(b *bed) {
	b.whileRead(func(o tier.Object) {
		b.l.Delete(background, []tier.Key{o.Key})
		for i := range 20 {
			_ = b.try(object(fmt.Sprintf("other %d", i), o.Size))
		}
	})
}

// evictedWhileRead: the same, with objects that go for room.
func evictedWhileRead(b *bed) {
	b.whileRead(func(o tier.Object) {
		for i := range 40 {
			_ = b.try(object(fmt.Sprintf("other %d", i), o.Size))
		}
	})
}

// whileRead removes an object while Into or To of a Get waits. A level may also let the removal wait.
func (b *bed) whileRead(remove func(o tier.Object)) {
	for _, way := range []string{"Into", "To"} {
		unit := int64(300_000)
		if b.o.Unlimited {
			b.open(0)
		} else {
			unit = b.openLimited()
		}
		o := object("a", unit)
		b.put(o)
		g := newGate(nil)
		w := &gatedWriter{g: g}
		gets := []tier.Get{{Key: o.Key, To: w}}
		if way == "Into" {
			gets[0] = tier.Get{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
				g.wait()
				return make([]byte, x.Size), nil
			}}
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			b.l.Get(background, gets)
		}()
		b.until("Get begins", g.began)
		removed := make(chan struct{})
		go func() {
			defer close(removed)
			remove(o)
		}()
		select {
		case <-removed:
		case <-time.After(100 * time.Millisecond): // it may wait for the Get
		}
		close(g.open)
		b.until("Get of what is removed", read)
		b.until("removal of what is read", removed)
		if gets[0].Err != nil {
			b.miss("Get of what is removed", gets[0].Err)
			continue
		}
		got := gets[0].Bytes
		if way == "To" {
			got = w.Bytes()
		}
		if err := whole(gets[0].Object, got, o); err != nil {
			b.Fatalf("Get with %s of what is removed meanwhile: %v", way, err)
		}
	}
}

// readTogether: many goroutines read an object at a time, with memory of their own.
func readTogether(b *bed) {
	b.open(0)
	objects := []tier.Object{object("a", 100_000), object("b", 10), object("c", 0)}
	b.put(objects...)
	b.together(8, func(i int) error {
		for n := range 20 {
			o := objects[(i+n)%len(objects)]
			var to bytes.Buffer
			gets := []tier.Get{{Key: o.Key}, {Key: o.Key, To: &to},
				{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
					return make([]byte, x.Size), nil
				}}}
			b.l.Get(background, gets)
			for j, g := range gets {
				if g.Err != nil {
					return fmt.Errorf("Get beside others: %w", g.Err)
				}
				got := g.Bytes
				if j == 1 {
					got = to.Bytes()
				}
				if err := whole(g.Object, got, o); err != nil {
					return fmt.Errorf("Get beside others: %w", err)
				}
				clear(got)
			}
		}
		return nil
	})
	b.get(objects...)
}
