package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// sizes are those of chunks and of outputs of encoders, with how often each comes.
var sizes = []struct {
	bytes, weight int
}{{64 * kib, 50}, {512 * kib, 30}, {2752512, 17}, {largest, 3}}

const largest = 35642880

// shift is how many places content can begin at.
const shift = 1 << 20

const (
	space = "volume"
	// chain is how many objects have the one before as their parent, until the next has none.
	chain = 8
	// privateBudget is what the process may have for itself, besides the buffers of its writers: the levels'
	// books, and Go's.
	privateBudget = 256 * mib
	// inFlight is the most bytes that a store moves at a time.
	inFlight = 128 * mib
	// descriptorBudget is what levels may have open.
	descriptorBudget = 64
)

// run writes, reads and watches.
func run(ctx context.Context, o options) (r report, err error) {
	name := fmt.Sprintf("ringcache-volume-%d", os.Getpid())
	if err := rehearse(o, name); err != nil {
		return r, err
	}
	if r.before, err = descriptors(); err != nil {
		return r, err
	}
	l, err := open(o, name)
	if err != nil {
		return r, err
	}
	w := &work{o: o, keeper: l.keeper(), random: newRandom(o.Seed)}
	began := time.Now()
	err = (&watcher{l, &r}).during(func() error {
		err := w.all(ctx)
		if l.store != nil {
			_, e := l.store.Drain(ctx)
			err = errors.Join(err, e)
		}
		return err
	})
	r.took = time.Since(began)
	r.written, r.found, r.missed, r.full, r.bytes = w.written.Load(), w.found.Load(), w.missed.Load(), w.full.Load(), w.bytes.Load()
	r.evicted = l.memory.Usage().Evicted
	err = errors.Join(err, l.remove())
	at, e := descriptors()
	r.at = at
	return r, errors.Join(err, e, r.check(o))
}

// rehearse opens and removes levels, so that what Go opens once for all counts as there before.
func rehearse(o options, name string) error {
	l, err := open(o, name)
	if err != nil {
		return err
	}
	return l.remove()
}

// check reports what was above its budget.
func (r *report) check(o options) error {
	var errs []error
	above := func(what string, got, most int64) {
		if got > most {
			errs = append(errs, fmt.Errorf("%s: %d, the most is %d", what, got, most))
		}
	}
	room := int64(o.MemoryGiB * gib)
	segment := room + room/16 + 16*mib // with the books beside the objects
	private := int64(o.Writers+1)*largest + shift + privateBudget
	if o.DiskGiB > 0 {
		private += 2 * inFlight // what is read from below is on the heap meanwhile, and for as long again until Go collects it
	}
	above("bytes of the memory level", r.memory, room)
	above("files of its segment", r.segment, segment)
	above("shared memory of the process", r.shared, segment)
	above("memory of its own", r.private, private)
	above("bytes of the disk level", r.disk, int64(o.DiskGiB*gib))
	above("files of the disk level", r.files, int64(o.DiskGiB*gib)+inFlight) // temporary ones are beside its capacity
	above("descriptors", int64(r.descriptors), int64(r.before+descriptorBudget))
	above("descriptors at the end", int64(r.at), int64(r.before))
	if want := int64(o.GiB * gib); r.bytes < want {
		errs = append(errs, fmt.Errorf("%d bytes were written of %d", r.bytes, want))
	}
	if r.found == 0 || r.samples < 2 {
		errs = append(errs, fmt.Errorf("%d objects were read back, %d samples: nothing was shown", r.found, r.samples))
	}
	return errors.Join(errs...)
}

// work is what the writers do.
type work struct {
	o      options
	keeper keeper
	random []byte

	bytes, written, found, missed, full atomic.Int64
}

func (w *work) all(ctx context.Context) error {
	errs := make([]error, w.o.Writers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = w.write(ctx, i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// write puts objects until enough was written, and reads an earlier one of its own after each.
func (w *work) write(ctx context.Context, writer int) error {
	rng := rand.New(rand.NewPCG(w.o.Seed, uint64(writer)+1))
	into := make([]byte, largest)
	var lengths []int
	total := int64(w.o.GiB * gib)
	for n := 0; w.bytes.Load() < total; n++ {
		o := tier.Object{Key: key(writer, n), Size: int64(draw(rng)), Tenant: "volume"}
		if n%chain > 0 {
			o.Parent = key(writer, n-1).Name
		}
		lengths = append(lengths, int(o.Size))
		put := []tier.Put{{Object: o, Bytes: w.content(writer, n, int(o.Size))}}
		w.keeper.Put(ctx, put)
		switch err := put[0].Err; {
		case errors.Is(err, tier.ErrFull):
			w.full.Add(1)
		case err != nil:
			return err
		default:
			w.written.Add(1)
			w.bytes.Add(o.Size)
		}
		back := n - int(rng.ExpFloat64()*40)
		if back < 0 {
			continue
		}
		if err := w.read(ctx, writer, back, lengths[back], into); err != nil {
			return err
		}
	}
	return nil
}

// read gets an object, which is gone or what was put.
func (w *work) read(ctx context.Context, writer, n, length int, into []byte) error {
	get := []tier.Get{{Key: key(writer, n), Into: func(o tier.Object) ([]byte, error) { return into[:o.Size], nil }}}
	w.keeper.Get(ctx, get)
	switch err := get[0].Err; {
	case errors.Is(err, tier.ErrCorrupt):
		return err
	case errors.Is(err, tier.ErrNotFound):
		w.missed.Add(1)
		return nil
	case err != nil:
		return err
	}
	if int(get[0].Object.Size) != length || !bytes.Equal(into[:length], w.content(writer, n, length)) {
		return fmt.Errorf("object %v is not what was put", get[0].Key)
	}
	w.found.Add(1)
	return nil
}

func key(writer, n int) tier.Key {
	return tier.Key{Space: space, Name: fmt.Sprintf("object-%d-%d", writer, n)}
}

// content returns the bytes of an object: a part of random ones that begins elsewhere for each object, so
// that neither all nor a part of another one looks the same.
func (w *work) content(writer, n, size int) []byte {
	at := uint64(writer<<32|n) * 0x9E3779B97F4A7C15 >> 40 & (shift - 1)
	return w.random[at:][:size]
}

// newRandom makes bytes for content.
func newRandom(seed uint64) []byte {
	rng, b := rand.New(rand.NewPCG(seed, 0)), make([]byte, largest+shift)
	for i := range len(b) / 8 {
		binary.LittleEndian.PutUint64(b[8*i:], rng.Uint64())
	}
	return b
}

func draw(rng *rand.Rand) int {
	sum := 0
	for _, s := range sizes {
		sum += s.weight
	}
	at := rng.IntN(sum)
	for _, s := range sizes {
		if at -= s.weight; at < 0 {
			return s.bytes
		}
	}
	panic("weights")
}
