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
	"github.com/ringcache/ringcache/shmstore"
)

// demo is one run.
type demo struct {
	o       options
	crops   []crop
	rng     *rand.Rand
	store   objstore.Store
	wire    serde.Options
	workers *workers
	open    []objstore.Request           // that the workers have not answered, oldest first
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
	d := &demo{
		o: o, wire: serde.Options{Generation: g},
		rng: rand.New(rand.NewPCG(o.Seed, 0)), digests: map[string]map[string]string{},
	}
	so := objstore.Options{
		RingSize: o.RingMB << 20, MaxObjectSize: min(16, o.RingMB) << 20, Readers: o.Workers, Generation: g,
		Watch: func(c shmstore.Change) {
			if !c.Present {
				d.stats.evicted++
			}
		},
	}
	if o.Policy == "fifo" {
		d.store, err = objstore.CreateFIFO(so)
	} else {
		d.store, err = objstore.CreatePool(so)
	}
	if err != nil {
		return err
	}
	defer func() {
		for _, r := range d.open { // after an error: the workers are gone by now
			r.Finish()
		}
		err = errors.Join(err, d.store.Close()) // also removes the segment
	}()

	started := waiting("the workers start")
	w, err := startWorkers(ctx, o.Python, workerConfig{
		Segment: d.store.Name(), Size: o.RingMB << 20, MaxObject: min(16, o.RingMB) << 20,
		Readers: o.Workers, Generation: g.Version, Peer: o.Peer,
	})
	started()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	d.workers = w
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
		if err := d.request(seq); err != nil {
			return err
		}
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
	for len(d.open) > n {
		if err := d.answer(); err != nil {
			return err
		}
		d.open[0].Finish() // every worker has read its images
		d.open = d.open[1:]
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

// request makes one request of several images, popular ones more often, and
// sends it.
func (d *demo) request(seq int) error {
	b := batch{Seq: seq}
	d.stats.requests++
	r, err := d.store.Begin(fmt.Sprint("request-", seq)) // what it uses stays until it ends
	if err != nil {
		return err
	}
	defer r.Rollback() // nothing after Commit
	for range d.o.Images {
		c := d.crops[int(float64(len(d.crops))*d.rng.Float64()*d.rng.Float64())]
		o, err := d.object(r, c)
		if err != nil {
			return err
		}
		b.Objects = append(b.Objects, o)
		d.stats.sent++
	}
	if err := r.Commit(); err != nil {
		return err
	}
	d.open = append(d.open, r)
	return d.workers.send(b)
}

// object returns the message for one image: an address, or the data itself if
// there is no room even after waiting.
func (d *demo) object(req objstore.Request, c crop) (object, error) {
	h, err := req.Lookup(c.key())
	if err == nil {
		d.stats.hits++
		return d.message(c, h)
	}
	r, err := req.Reserve(c.key(), c.layout(), objstore.PutOptions{})
	if errors.Is(err, objstore.ErrFull) && len(d.open) > 0 {
		// What is in the way is being read: wait for that.
		if err := d.await(0); err != nil {
			return object{}, err
		}
		r, err = req.Reserve(c.key(), c.layout(), objstore.PutOptions{})
	}
	if errors.Is(err, objstore.ErrFull) || errors.Is(err, objstore.ErrTooLarge) {
		return d.inline(c)
	}
	if err != nil {
		return object{}, err
	}
	defer r.Discard()
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

func (d *demo) message(c crop, h serde.Address) (object, error) {
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
