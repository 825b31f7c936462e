package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/serde"
)

const mib = 1 << 20

// bench is a store of ours with one reader on a real segment, as the peer makes
// its own.
type bench struct {
	w    upstream.Steps
	r    *objstore.Reader
	item *serde.Item
	made int
	key  string // the last one
	h    serde.Address
	owed int // uses of h that were not read yet, or reads ahead if negative
	buf  []byte
}

// lock is as cheap as the peer's, which is a semaphore that no one else takes.
type lock chan struct{}

func (l lock) Lock(context.Context) error { l <- struct{}{}; return nil }
func (l lock) Unlock() error              { <-l; return nil }

func newBench(size int, policy string) (*bench, error) {
	data := make([]byte, size)
	_, _ = rand.Read(data)
	ring := max(8*(size+4096), mib)
	w, err := create(policy, objstore.Options{
		Name: fmt.Sprintf("ringcache-bench-%d", os.Getpid()), RingSize: ring, MaxObjectSize: size + 4096, Readers: 1, TrustCounts: true,
	})
	if err != nil {
		return nil, err
	}
	r, err := objstore.Open(w.Name(), objstore.ReaderOptions{RingSize: ring, Readers: 1, Lock: make(lock, 1)})
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	b := &bench{w: w, r: r, item: &serde.Item{Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{size}, Data: data},
	}}}}
	for range 2 * ring / (size + 4096) {
		if _, err := b.put(1); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	return b, nil
}

// create makes a store, with the steps that the peer does.
func create(policy string, o objstore.Options) (upstream.Steps, error) {
	var s objstore.Store
	var err error
	if policy == "fifo" {
		s, err = objstore.CreateFIFO(o)
	} else {
		s, err = objstore.CreatePool(o)
	}
	if err != nil {
		return nil, err
	}
	return upstream.New(s, upstream.Options{}), nil
}

func (b *bench) close() error { return errors.Join(b.r.Close(), b.w.Close()) }

// put times n puts of new keys.
func (b *bench) put(n int) (ns float64, err error) {
	for range n {
		if err := b.settle(); err != nil {
			return 0, err
		}
		b.made++
		b.key = fmt.Sprint("key", b.made)
		begin := time.Now()
		b.h, err = b.w.Put(b.key, b.item, objstore.PutOptions{})
		ns += float64(time.Since(begin))
		if err != nil {
			return 0, err
		}
		b.owed = 1
	}
	return ns, b.settle()
}

// settle evens uses and reads out, so that the object can be evicted.
func (b *bench) settle() error {
	for ; b.owed > 0; b.owed-- {
		if err := b.get(b.h, (*objstore.View).Check); err != nil {
			return err
		}
	}
	for ; b.owed < 0; b.owed++ {
		if _, err := b.w.GetCached(b.key); err != nil {
			return err
		}
	}
	return nil
}

// get reads, uses the view and counts.
func (b *bench) get(h serde.Address, use func(*objstore.View) error) error {
	v, err := b.r.Get(b.key, h)
	if err != nil {
		return err
	}
	return errors.Join(use(v), v.Release())
}

func (b *bench) timeGets(n int, use func(*objstore.View) error) (float64, error) {
	begin := time.Now()
	for range n {
		if err := b.get(b.h, use); err != nil {
			return 0, err
		}
	}
	ns := float64(time.Since(begin))
	b.owed -= n
	return ns, b.settle()
}

func (b *bench) view(n int) (float64, error) { return b.timeGets(n, (*objstore.View).Check) }

// copied copies into memory that is used again, as Python's allocator does.
func (b *bench) copied(n int) (float64, error) {
	return b.timeGets(n, func(v *objstore.View) error {
		b.buf = append(b.buf[:0], v.Item().Elems[0].Data.(*serde.Tensor).Data...)
		return v.Check()
	})
}

func (b *bench) clone(n int) (float64, error) {
	return b.timeGets(n, func(v *objstore.View) error {
		_, err := v.Clone()
		return err
	})
}

func (b *bench) hit(n int) (float64, error) {
	begin := time.Now()
	for range n {
		if _, err := b.w.GetCached(b.key); err != nil {
			return 0, err
		}
	}
	ns := float64(time.Since(begin))
	b.owed += n
	return ns, b.settle()
}

// measure appends the median time of one operation in nanoseconds.
func measure(op func(*bench, int) (float64, error), policy string, size, rounds int, to *[]float64) (err error) {
	b, err := newBench(size, policy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	n := max(1, min(64, 4*mib/size))
	if _, err := op(b, n); err != nil { // warm
		return err
	}
	var times []float64
	for range rounds {
		ns, err := op(b, n)
		if err != nil {
			return err
		}
		times = append(times, ns/float64(n))
	}
	*to = append(*to, median(times))
	return nil
}
