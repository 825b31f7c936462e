package tiertest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"testing/iotest"

	"github.com/ringcache/ringcache/tier"
)

var sizes = []int64{0, 1, 2, 7, 8, 9, 63, 64, 65, 511, 4095, 4096, 4097, 65535, 65536, 1<<20 + 1}

// roundTrip: bytes of every size come back, whichever way they went in and out.
func roundTrip(b *bed) {
	b.open(0)
	var all []tier.Object
	for _, way := range []string{"bytes", "stream", "one byte at a time"} {
		for i, size := range sizes {
			if way == "one byte at a time" && size > 5000 {
				continue
			}
			o := object(way+" "+string(rune('a'+i)), size)
			p := putOf(o)
			switch way {
			case "stream":
				p.From, p.Bytes = iotest.DataErrReader(bytes.NewReader(p.Bytes)), nil
			case "one byte at a time":
				p.From, p.Bytes = iotest.OneByteReader(bytes.NewReader(p.Bytes)), nil
			}
			puts := []tier.Put{p}
			b.l.Put(background, puts)
			b.is("Put of "+show(o.Key), puts[0].Err, nil)
			all = append(all, o)
			b.get(o)
			b.usage(all...)
		}
	}
	neither, both := object("neither", 0), object("both", 100)
	puts := []tier.Put{{Object: neither}, {Object: both, Bytes: make([]byte, 7),
		From: bytes.NewReader(content(both.Key, 100))}}
	b.l.Put(background, puts)
	b.is("Put of an empty object with neither bytes nor stream", puts[0].Err, nil)
	b.is("Put with a stream and other bytes", puts[1].Err, nil)
	all = append(all, neither, both)
	b.get(neither, both)
	for _, o := range all {
		var to bytes.Buffer
		into := make([]byte, o.Size)
		gets := []tier.Get{{Key: o.Key, To: &to}, {Key: o.Key, Into: func(tier.Object) ([]byte, error) {
			return into, nil
		}}}
		b.l.Get(background, gets)
		for i, got := range [][]byte{to.Bytes(), into} {
			b.is("Get of "+show(o.Key), gets[i].Err, nil)
			if err := whole(gets[i].Object, got, o); err != nil {
				b.Fatalf("Get: %v", err)
			}
		}
	}
	b.has(all...)
}

// ownMemory: what callers do with their memory afterwards changes nothing.
func ownMemory(b *bed) {
	b.open(0)
	o := object("a", 5000)
	puts := []tier.Put{putOf(o)}
	b.l.Put(background, puts)
	b.is("Put", puts[0].Err, nil)
	if err := whole(puts[0].Object, puts[0].Bytes, o); err != nil {
		b.Fatalf("Put changed what it was given: %v", err)
	}
	clear(puts[0].Bytes)
	b.get(o)
	gets := []tier.Get{{Key: o.Key}, {Key: o.Key}}
	b.l.Get(background, gets)
	b.is("Get", gets[0].Err, nil)
	clear(gets[0].Bytes)
	if err := whole(gets[1].Object, gets[1].Bytes, o); err != nil {
		b.Fatalf("two answers of one batch share memory: %v", err)
	}
	b.get(o)
}

// staleAnswers: a Get that was used before has the new answer only.
func staleAnswers(b *bed) {
	b.open(0)
	o := object("a", 100)
	b.put(o)
	stale := tier.Get{Object: object("x", 3), Bytes: []byte("old"), Err: io.ErrNoProgress}
	gets := []tier.Get{stale, stale}
	gets[0].Key, gets[1].Key = o.Key, key("absent")
	b.l.Get(background, gets)
	b.is("Get", gets[0].Err, nil)
	if err := whole(gets[0].Object, gets[0].Bytes, o); err != nil {
		b.Fatalf("Get with an old answer: %v", err)
	}
	b.miss("Get of what is absent, with an old answer", gets[1].Err)
	if gets[1].Bytes != nil {
		b.Fatalf("Get of what is absent returns the bytes %q of an old answer", gets[1].Bytes)
	}
	puts := []tier.Put{putOf(object("b", 10))}
	puts[0].Err = io.ErrNoProgress
	b.l.Put(background, puts)
	b.is("Put with an old answer", puts[0].Err, nil)
}

var errStream = errors.New("the stream is broken")

// streamsIn: a stream that is not exactly the object leaves nothing.
func streamsIn(b *bed) {
	b.open(0)
	const size = 70_000
	good := []tier.Object{object("before", 10), object("after", 4096)}
	var kept []tier.Object
	for _, c := range []struct {
		name string
		from io.Reader
		want error
	}{
		{"empty", bytes.NewReader(nil), io.ErrUnexpectedEOF},
		{"one byte short", bytes.NewReader(make([]byte, size-1)), io.ErrUnexpectedEOF},
		{"one byte long", bytes.NewReader(make([]byte, size+1)), fs.ErrInvalid},
		{"twice as long", bytes.NewReader(make([]byte, 2*size)), fs.ErrInvalid},
		{"broken at once", iotest.ErrReader(errStream), errStream},
		{"broken in the middle", io.MultiReader(bytes.NewReader(make([]byte, size/2)), iotest.ErrReader(errStream)),
			errStream},
		{"broken one byte before the end", io.MultiReader(bytes.NewReader(make([]byte, size-1)),
			iotest.ErrReader(errStream)), errStream},
	} {
		bad := object(c.name, size)
		puts := []tier.Put{putOf(good[0]), {Object: bad, From: c.from}, putOf(good[1])}
		b.l.Put(background, puts)
		b.is("Put in front of a bad stream", puts[0].Err, nil)
		b.is("Put of a stream that is "+c.name, puts[1].Err, c.want)
		b.is("Put behind a bad stream", puts[2].Err, nil)
		b.gone(bad)
		kept = good
		b.has(kept...)
		b.put(bad) // nothing is in the way
		b.get(bad)
		b.delete(bad)
		b.has(kept...)
	}
	empty := object("empty object", 0)
	puts := []tier.Put{{Object: empty, From: bytes.NewReader([]byte("x"))}}
	b.l.Put(background, puts)
	b.is("Put of an empty object with a stream of one byte", puts[0].Err, fs.ErrInvalid)
	b.gone(empty)
	for _, n := range []int64{0, 99, 101} {
		o := object("wrong length", 100)
		puts := []tier.Put{{Object: o, Bytes: make([]byte, n)}}
		b.l.Put(background, puts)
		b.is("Put of 100 bytes with others", puts[0].Err, fs.ErrInvalid)
		b.gone(o)
	}
	b.has(kept...)
}

// badWriter fails after some bytes, with err, or says that it took fewer.
type badWriter struct {
	left int
	err  error
}

func (w *badWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, w.err
	}
	return n, nil
}

// streamsOut: To gets the bytes, alone, and its error is the answer.
func streamsOut(b *bed) {
	b.open(0)
	o, other := object("a", 300_000), object("b", 3)
	b.put(o, other)
	var called atomic.Int32
	var to bytes.Buffer
	gets := []tier.Get{{Key: o.Key, To: &to, Into: func(x tier.Object) ([]byte, error) {
		called.Add(1)
		return make([]byte, x.Size), nil
	}}}
	b.l.Get(background, gets)
	b.is("Get with To", gets[0].Err, nil)
	if err := whole(gets[0].Object, to.Bytes(), o); err != nil {
		b.Fatalf("Get with To: %v", err)
	}
	if gets[0].Bytes != nil {
		b.Fatalf("Get with To returns bytes as well")
	}
	if called.Load() != 0 {
		b.Fatalf("Get with To calls Into as well")
	}
	for _, left := range []int{0, 1, 299_999} {
		gets := []tier.Get{{Key: o.Key, To: &badWriter{left, errStream}}, {Key: other.Key}}
		b.l.Get(background, gets)
		b.is("Get with To that fails", gets[0].Err, errStream)
		b.is("Get beside To that fails", gets[1].Err, nil)
		gets = []tier.Get{{Key: o.Key, To: &badWriter{left, nil}}}
		b.l.Get(background, gets)
		if gets[0].Err == nil {
			b.Fatalf("Get with To that takes %d bytes of %d: no error", left, o.Size)
		}
	}
	absent := &badWriter{0, errStream}
	gets = []tier.Get{{Key: key("absent"), To: absent}}
	b.l.Get(background, gets)
	b.miss("Get of what is absent with To", gets[0].Err)
	b.get(o, other)
	b.has(o, other)
}

// into: the caller's memory is asked for once, and is what is written to.
func into(b *bed) {
	b.open(0)
	objects := []tier.Object{object("a", 0), object("b", 1), object("c", 4097), object("d", 300_000)}
	objects[2].Note = []byte("a note")
	b.put(objects...)
	for _, o := range objects {
		const guard = 64
		memory := bytes.Repeat([]byte{0xa5}, int(o.Size)+2*guard)
		place := memory[guard : guard+o.Size] // with capacity behind it
		var calls atomic.Int32
		var seen tier.Object
		gets := []tier.Get{{Key: o.Key, Into: func(x tier.Object) ([]byte, error) {
			calls.Add(1)
			seen = x
			return place, nil
		}}}
		b.l.Get(background, gets)
		b.is("Get with Into", gets[0].Err, nil)
		if n := calls.Load(); n != 1 {
			b.Fatalf("Get of an object that is there called Into %d times", n)
		}
		if err := described(seen, o); err != nil {
			b.Fatalf("Into: %v", err)
		}
		if err := whole(gets[0].Object, gets[0].Bytes, o); err != nil {
			b.Fatalf("Get with Into: %v", err)
		}
		if o.Size > 0 && &gets[0].Bytes[0] != &place[0] {
			b.Fatalf("Get with Into returns other memory than that of Into")
		}
		if !bytes.Equal(memory[:guard], bytes.Repeat([]byte{0xa5}, guard)) ||
			!bytes.Equal(memory[guard+o.Size:], bytes.Repeat([]byte{0xa5}, guard)) {
			b.Fatalf("Get with Into writes outside of the memory of Into")
		}
	}
	none := []tier.Get{{Key: objects[0].Key, Into: func(tier.Object) ([]byte, error) { return nil, nil }}}
	b.l.Get(background, none)
	b.is("Get of an empty object with Into that returns nil", none[0].Err, nil)
	var calls atomic.Int32
	gets := []tier.Get{{Key: key("absent"), Into: func(tier.Object) ([]byte, error) {
		calls.Add(1)
		return nil, nil
	}}}
	b.l.Get(background, gets)
	b.miss("Get of what is absent with Into", gets[0].Err)
	if calls.Load() != 0 {
		b.Fatalf("Get of what is absent called Into")
	}
}

// intoRefused: errors and wrong memory of Into are the error of that element only.
func intoRefused(b *bed) {
	b.open(0)
	o, other := object("a", 5000), object("b", 100)
	b.put(o, other)
	for _, c := range []struct {
		name   string
		memory []byte
		err    error
		want   error
	}{
		{"fails", nil, errStream, errStream},
		{"returns memory and fails", make([]byte, 5000), errStream, errStream},
		{"returns nil", nil, nil, fs.ErrInvalid},
		{"returns a byte less", make([]byte, 4999), nil, fs.ErrInvalid},
		{"returns a byte less with more behind it", make([]byte, 4999, 6000), nil, fs.ErrInvalid},
		{"returns a byte more", make([]byte, 5001), nil, fs.ErrInvalid},
	} {
		var calls atomic.Int32
		gets := []tier.Get{{Key: other.Key}, {Key: o.Key, Into: func(tier.Object) ([]byte, error) {
			calls.Add(1)
			return c.memory, c.err
		}}, {Key: other.Key}}
		b.l.Get(background, gets)
		b.is("Get with Into that "+c.name, gets[1].Err, c.want)
		if n := calls.Load(); n != 1 {
			b.Fatalf("Get called Into that %s %d times", c.name, n)
		}
		for _, i := range []int{0, 2} {
			b.is("Get beside Into that "+c.name, gets[i].Err, nil)
			if err := whole(gets[i].Object, gets[i].Bytes, other); err != nil {
				b.Fatalf("Get beside Into that %s: %v", c.name, err)
			}
		}
		b.get(o)
	}
	b.has(o, other)
}
