package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
)

// demo is one run.
type demo struct {
	o       options
	crops   []crop
	rng     *rand.Rand
	store   *objstore.Writer
	wire    serde.Options
	workers *workers
	waiting int                          // requests that the workers have not answered
	digests map[string]map[string]string // what they must find, by key and tensor
	stats   stats
}

// stats are counted by the frontend, but for what the workers verified.
type stats struct {
	requests, objects, hits, inline, evicted int
	put                                      int64 // bytes written to the segment
	sent, verified                           int   // objects, verified over all workers
	verifiedBytes                            int64
	elapsed                                  time.Duration
	problems                                 []string
}

func run(ctx context.Context, o options) (err error) {
	photos, err := loadPhotos(o.Photos)
	if err != nil {
		return err
	}
	g, err := pycompat.Lookup(o.Engine)
	if err != nil {
		return err
	}
	store, err := objstore.Create(objstore.Options{
		RingSize: o.RingMB << 20, MaxObjectSize: 16 << 20, Readers: o.Workers, Generation: g,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }() // also removes the segment

	w, err := startWorkers(ctx, o.Python, workerConfig{
		Segment: store.Name(), Size: o.RingMB << 20, MaxObject: 16 << 20,
		Readers: o.Workers, Generation: g.Version, Peer: o.Peer,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	d := &demo{
		o: o, store: store, workers: w, wire: serde.Options{Generation: g},
		rng: rand.New(rand.NewPCG(o.Seed, 0)), digests: map[string]map[string]string{},
	}
	for _, p := range photos {
		for i := range 8 { // one photo gives eight images
			d.crops = append(d.crops, newCrop(p, 6*i, 2*i))
		}
	}
	if err := d.serve(); err != nil {
		return err
	}
	return d.report()
}

// serve sends the requests. While the workers read one the next is made.
func (d *demo) serve() error {
	bar := newProgress(d.o.Requests)
	defer bar.done()
	begin := time.Now()
	for seq := range d.o.Requests {
		b, err := d.request(seq)
		if err != nil {
			return err
		}
		if err := d.workers.send(b); err != nil {
			return err
		}
		d.waiting++
		if err := d.await(1); err != nil {
			return err
		}
		bar.set(seq + 1)
	}
	err := d.await(0)
	d.stats.elapsed = time.Since(begin)
	return err
}

// await waits until at most n requests are without an answer.
func (d *demo) await(n int) error {
	for d.waiting > n {
		if err := d.answer(); err != nil {
			return err
		}
		d.waiting--
	}
	return nil
}

func (d *demo) answer() error {
	a, err := d.workers.receive()
	if err != nil {
		return err
	}
	d.stats.verified += a.Objects
	d.stats.verifiedBytes += a.Bytes
	d.stats.problems = append(d.stats.problems, a.Errors...)
	return nil
}

// request makes one request of several images, popular ones more often.
func (d *demo) request(seq int) (batch, error) {
	b := batch{Seq: seq}
	d.stats.requests++
	defer d.store.ReleaseTouches()
	var crops []crop
	for range d.o.Images {
		c := d.crops[int(float64(len(d.crops))*d.rng.Float64()*d.rng.Float64())]
		crops = append(crops, c)
		if err := d.store.Touch(c.key()); err != nil { // keep what this request needs
			return b, err
		}
	}
	for _, c := range crops {
		o, err := d.object(c)
		if err != nil {
			return b, err
		}
		b.Objects = append(b.Objects, o)
		d.stats.sent++
	}
	return b, nil
}

// object returns the message for one image: an address, or the data itself if
// there is no room even after waiting.
func (d *demo) object(c crop) (object, error) {
	h, err := d.store.Lookup(c.key())
	if err == nil {
		d.stats.hits++
		return d.message(c, h)
	}
	before := d.store.Len()
	r, err := d.store.Reserve(c.key(), c.layout())
	if errors.Is(err, objstore.ErrFull) && d.waiting > 0 {
		// What is in the way is being read: wait for that.
		if err := d.await(0); err != nil {
			return object{}, err
		}
		r, err = d.store.Reserve(c.key(), c.layout())
	}
	if errors.Is(err, objstore.ErrFull) || errors.Is(err, objstore.ErrTooLarge) {
		return d.inline(c)
	}
	if err != nil {
		return object{}, err
	}
	defer r.Discard()
	d.stats.evicted += before + 1 - d.store.Len()

	pixels, grid := r.Tensor("pixel_values"), r.Tensor("image_grid_thw")
	c.fill(pixels, grid)
	d.remember(c, pixels, grid)
	d.stats.objects++
	d.stats.put += int64(len(pixels) + len(grid))
	h, err = r.Commit()
	if err != nil {
		return object{}, err
	}
	return d.message(c, h)
}

// remember keeps what the workers must find, whoever's process they run in.
func (d *demo) remember(c crop, pixels, grid []byte) {
	hash := func(b []byte) string {
		s := sha256.Sum256(b)
		return hex.EncodeToString(s[:])
	}
	d.digests[c.key()] = map[string]string{"pixel_values": hash(pixels), "image_grid_thw": hash(grid)}
}

func (d *demo) message(c crop, h objstore.Handle) (object, error) {
	b, err := serde.EncodeAddress(h, "image", d.wire)
	if err != nil {
		return object{}, err
	}
	return object{c.key(), []string{hex.EncodeToString(b)}, d.digests[c.key()]}, nil
}

func (d *demo) inline(c crop) (object, error) {
	it := c.layout()
	for i := range it.Elems {
		t := it.Elems[i].Data.(*serde.Tensor)
		n, err := t.NBytes()
		if err != nil {
			return object{}, err
		}
		t.Data = make([]byte, n)
	}
	pixels, grid := it.Elems[0].Data.(*serde.Tensor).Data, it.Elems[1].Data.(*serde.Tensor).Data
	c.fill(pixels, grid)
	d.remember(c, pixels, grid)
	d.stats.inline++
	plan, err := serde.NewPlan(it, d.wire)
	if err != nil {
		return object{}, err
	}
	o := object{Key: c.key(), SHA256: d.digests[c.key()]}
	for _, f := range plan.Frames() {
		o.Frames = append(o.Frames, hex.EncodeToString(f))
	}
	return o, nil
}

// report prints the table, and fails unless every worker verified every object.
func (d *demo) report() error {
	d.stats.print(d.o, len(d.crops))
	want := d.stats.sent * d.o.Workers
	switch {
	case len(d.stats.problems) > 0:
		return fmt.Errorf("%d objects were not read as written; the first: %s", len(d.stats.problems), d.stats.problems[0])
	case d.stats.verified != want:
		return fmt.Errorf("%d objects were verified, want %d", d.stats.verified, want)
	}
	return nil
}
