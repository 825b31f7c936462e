package tiertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/tier"
)

// closed: after Close, every answer is fs.ErrClosed, and closing again is fine.
func closed(b *bed) {
	b.open(0)
	o := object("a", 100)
	b.put(o)
	name := b.l.Name()
	b.wait("Close", func() { b.is("Close", b.l.Close(), nil) })
	for range 2 {
		b.wait("calls after Close", func() { b.closedAnswers(o) })
		b.wait("Close again", func() { b.is("Close again", b.l.Close(), nil) })
	}
	_ = b.l.Usage()
	if b.l.Name() != name {
		b.Fatalf("the name was %q, and is %q after Close", name, b.l.Name())
	}
	b.open(0)
	b.together(8, func(int) error { return b.l.Close() })
}

func (b *bed) closedAnswers(o tier.Object) {
	found := b.l.Stat(background, []tier.Key{o.Key, key("absent")})
	gets := []tier.Get{{Key: o.Key}, {Key: key("absent"), Into: func(tier.Object) ([]byte, error) {
		return nil, errStream
	}}}
	b.l.Get(background, gets)
	puts := []tier.Put{putOf(o), putOf(object("b", 3)),
		{Object: object("c", 3), From: bytes.NewReader(make([]byte, 3))}}
	b.l.Put(background, puts)
	errs := b.l.Delete(background, []tier.Key{o.Key, key("absent")})
	if len(found) != 2 || len(errs) != 2 {
		b.Errorf("Stat and Delete of 2 keys after Close have %d and %d answers", len(found), len(errs))
		return
	}
	all := []error{found[0].Err, found[1].Err, gets[0].Err, gets[1].Err, puts[0].Err, puts[1].Err, puts[2].Err,
		errs[0], errs[1]}
	last := error(nil)
	n := 0
	for _, err := range b.l.List(background, "") {
		last = err
		n++
	}
	if n > 1 {
		b.Errorf("List after Close has %d elements", n)
	}
	for i, err := range append(all, last) {
		if !errors.Is(err, fs.ErrClosed) {
			b.Errorf("after Close, call %d of Stat, Get, Put, Delete, List is answered with %v", i, err)
		}
	}
	if gets[0].Bytes != nil {
		b.Errorf("Get after Close returns bytes")
	}
}

// gate is a stream that waits at its first byte.
type gate struct {
	from  *bytes.Reader
	began chan struct{}
	open  chan struct{}
	first atomic.Bool
}

func newGate(content []byte) *gate {
	return &gate{from: bytes.NewReader(content), began: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) wait() {
	if g.first.CompareAndSwap(false, true) {
		close(g.began)
	}
	<-g.open
}

func (g *gate) Read(p []byte) (int, error) {
	g.wait()
	return g.from.Read(p)
}

// closeWaits: Close returns after the calls that had begun.
func closeWaits(b *bed) {
	for _, method := range []string{"Put", "Get"} {
		b.open(0)
		o := object("a", 1000)
		g := newGate(content(o.Key, o.Size))
		var err error
		called := make(chan struct{})
		if method == "Get" {
			b.put(o)
		}
		go func() {
			defer close(called)
			if method == "Put" {
				puts := []tier.Put{{Object: o, From: g}}
				b.l.Put(background, puts)
				err = puts[0].Err
				return
			}
			gets := []tier.Get{{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
				g.wait()
				return make([]byte, x.Size), nil
			}}}
			b.l.Get(background, gets)
			if err = gets[0].Err; err == nil {
				err = whole(gets[0].Object, gets[0].Bytes, o)
			}
		}()
		b.until(method+" begins", g.began)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = b.l.Close()
		}()
		select {
		case <-done:
			close(g.open)
			b.Fatalf("Close returned before a %s that had begun", method)
		case <-time.After(50 * time.Millisecond): // it must not have returned
		}
		close(g.open)
		b.until(method+" beside Close", called)
		b.until("Close", done)
		if err != nil {
			b.is(method+" beside Close", err, fs.ErrClosed)
		}
	}
}

// closeUnderLoad: calls beside Close are answered, and none after it.
func closeUnderLoad(b *bed) {
	for range 3 {
		b.open(0)
		var closing, closed atomic.Bool
		load := make(chan struct{}, 100)
		b.together(5, func(i int) error {
			if i == 0 {
				for range 5 {
					<-load
				}
				closing.Store(true)
				err := b.l.Close()
				closed.Store(true)
				return err
			}
			step := func() {
				select {
				case load <- struct{}{}:
				default:
				}
			}
			defer func() { // an error ends the wait, too
				for range 5 {
					step()
				}
			}()
			for n := 0; ; n++ {
				step()
				before, after := closing.Load(), closed.Load()
				o := object(fmt.Sprintf("%d", n%20), 500)
				puts := []tier.Put{putOf(o)}
				b.l.Put(background, puts)
				gets := []tier.Get{{Key: o.Key}}
				b.l.Get(background, gets)
				errs := append(b.l.Delete(background, []tier.Key{o.Key}), puts[0].Err, gets[0].Err)
				for j, err := range errs {
					switch {
					case errors.Is(err, fs.ErrClosed):
						if !before && !closing.Load() {
							return fmt.Errorf("call %d is answered with %w before Close", j, err)
						}
					case after:
						return fmt.Errorf("call %d after Close is answered with %w", j, errOr(err))
					case err != nil && !errors.Is(err, tier.ErrNotFound) && !errors.Is(err, tier.ErrPending):
						return fmt.Errorf("call %d beside Close is answered with %w", j, err)
					}
				}
				if gets[0].Err == nil {
					if err := whole(gets[0].Object, gets[0].Bytes, o); err != nil {
						return err
					}
				}
				if after {
					return nil
				}
			}
		})
	}
}

var errNone = errors.New("no error")

func errOr(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// leavesNothing: a level that was used and closed leaves no goroutine.
func leavesNothing(b *bed) {
	before := goleak.IgnoreCurrent()
	l := b.o.Open(b, b.o.Capacity)
	o := object("a", 1000)
	puts := []tier.Put{putOf(o), {Object: object("b", 5), From: bytes.NewReader(nil)}}
	l.Put(background, puts)
	gets := []tier.Get{{Key: o.Key}, {Key: key("absent")}, {Key: o.Key, To: &badWriter{3, errStream}}}
	l.Get(background, gets)
	for _, err := range l.List(background, "") {
		b.is("List", err, nil)
		break
	}
	b.is("Close", l.Close(), nil)
	var err error
	for begin := time.Now(); time.Since(begin) < b.o.patience; {
		if err = goleak.Find(before); err == nil {
			return
		}
	}
	b.Fatalf("goroutines are left after Close: %v", err)
}
