package tiertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// endedBefore: with a context that has ended, every element has its error, and nothing happens.
func endedBefore(b *bed) {
	b.open(0)
	o, other := object("a", 100), object("b", 100)
	b.put(o)
	canceled, cancel := context.WithCancel(background)
	cancel()
	late, cancelLate := context.WithDeadline(background, time.Now().Add(-time.Second))
	defer cancelLate()
	for ctx, want := range map[context.Context]error{canceled: context.Canceled, late: context.DeadlineExceeded} {
		for i, f := range b.l.Stat(ctx, []tier.Key{o.Key, other.Key}) {
			b.is(fmt.Sprintf("element %d of Stat", i), f.Err, want)
		}
		var called atomic.Int32
		var to bytes.Buffer
		gets := []tier.Get{{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
			called.Add(1)
			return make([]byte, x.Size), nil
		}}, {Key: o.Key, To: &to}, {Key: o.Key}, {Key: other.Key}}
		b.l.Get(ctx, gets)
		for i, g := range gets {
			b.is(fmt.Sprintf("element %d of Get", i), g.Err, want)
			if g.Bytes != nil {
				b.Fatalf("element %d of Get has bytes and the error %v", i, g.Err)
			}
		}
		if called.Load() != 0 || to.Len() != 0 {
			b.Fatalf("Get with a context that has ended used Into %d times, and wrote %d bytes", called.Load(),
				to.Len())
		}
		puts := []tier.Put{putOf(other), {Object: object("c", 3), From: bytes.NewReader(make([]byte, 3))}}
		b.l.Put(ctx, puts)
		for i, p := range puts {
			b.is(fmt.Sprintf("element %d of Put", i), p.Err, want)
		}
		b.is("Delete", b.l.Delete(ctx, []tier.Key{o.Key})[0], want)
		b.listEnds(ctx, want)
		b.has(o)
		b.get(o)
	}
}

// listEnds expects that List ends with an error, which is its last element.
func (b *bed) listEnds(ctx context.Context, want error) {
	b.Helper()
	var errs []error
	for _, err := range b.l.List(ctx, "") {
		if len(errs) > 0 {
			b.Fatalf("List goes on after the error %v", errs[0])
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		b.Fatalf("List has no error, expected %v", want)
	}
	b.is("List", errs[0], want)
}

// cancelingReader cancels a context after some bytes, and goes on, with few bytes at a time.
type cancelingReader struct {
	from   io.Reader
	left   int
	cancel func()
}

func (r *cancelingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p[:min(len(p), 4096)])
	if r.left -= n; r.left <= 0 {
		r.cancel()
	}
	return n, err
}

// endedInPut: when the context ends, what was stored stays, and the rest of the batch was not begun.
func endedInPut(b *bed) {
	b.open(0)
	const size = 4 << 20
	before, during, after := object("before", 100), object("during", size), object("after", 100)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	c := content(during.Key, size)
	puts := []tier.Put{putOf(before), {Object: during, From: &cancelingReader{bytes.NewReader(c), 1 << 20, cancel}},
		putOf(after)}
	b.wait("Put whose context ends", func() { b.l.Put(ctx, puts) })
	b.is("Put in front of the end of the context", puts[0].Err, nil)
	b.is("Put whose context ended with 3 of 4 MiB to read", puts[1].Err, context.Canceled)
	b.is("Put behind the end of the context", puts[2].Err, context.Canceled)
	b.gone(during, after)
	b.get(before)
	b.has(before)
	b.put(during, after)
	b.get(during, after)
	b.has(before, during, after)
}

// waitingReader waits for the end of a context.
type waitingReader struct{ ctx context.Context }

func (r waitingReader) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, context.Cause(r.ctx)
}

// endedInWait: a stream that waits ends with its context.
func endedInWait(b *bed) {
	b.open(0)
	o := object("a", 100)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	began := make(chan struct{})
	puts := []tier.Put{{Object: o, From: &cancelingReader{waitingReader{ctx}, 0, func() {}}}}
	go func() {
		<-began
		cancel()
	}()
	b.wait("Put of a stream that waits for the context", func() {
		close(began)
		b.l.Put(ctx, puts)
	})
	b.is("Put of a stream that waited for the end of the context", puts[0].Err, context.Canceled)
	b.gone(o)
	b.has()
}

// endedInGet: elements that were not done when the context ended have its error.
func endedInGet(b *bed) {
	b.open(0)
	var objects []tier.Object
	for i := range 400 {
		objects = append(objects, object(fmt.Sprintf("%d", i), 3000))
	}
	b.put(objects...)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	gets := make([]tier.Get, len(objects))
	for i, o := range objects {
		gets[i] = tier.Get{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
			cancel()
			return make([]byte, x.Size), nil
		}}
	}
	b.wait("Get whose context ends", func() { b.l.Get(ctx, gets) })
	b.someEnded(gets, objects)
	b.get(objects...)

	// A stream: all of it, or the error.
	big := object("big", 8<<20)
	b.put(big)
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	w := &cancelingWriter{cancel: cancel}
	one := []tier.Get{{Key: big.Key, To: w}}
	b.wait("Get whose context ends", func() { b.l.Get(ctx, one) })
	if one[0].Err == nil {
		if err := whole(one[0].Object, w.Bytes(), big); err != nil {
			b.Fatalf("Get whose context ended: %v", err)
		}
	} else {
		b.is("Get whose context ended", one[0].Err, context.Canceled)
	}
}

// someEnded expects that each answer is right or the error of the context, and some are that.
func (b *bed) someEnded(gets []tier.Get, objects []tier.Object) {
	b.Helper()
	ended := 0
	for i, g := range gets {
		if g.Err != nil {
			b.is(fmt.Sprintf("element %d of Get", i), g.Err, context.Canceled)
			ended++
		} else if err := whole(g.Object, g.Bytes, objects[i]); err != nil {
			b.Fatalf("element %d of Get: %v", i, err)
		}
	}
	if ended == 0 {
		b.Fatalf("the context ended with the first of %d elements, and Get did all of them", len(gets))
	}
}

type cancelingWriter struct {
	bytes.Buffer
	cancel func()
}

func (w *cancelingWriter) Write(p []byte) (int, error) {
	w.cancel()
	return w.Buffer.Write(p)
}
