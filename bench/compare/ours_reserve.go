package main

import (
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// reserveJob makes objects in place without writing their pixels: Begin, Reserve, Commit of the reservation and
// of the request, Finish. What is left is all that the store does besides copying.
type reserveJob struct {
	store
	layout *serde.Item
}

func ourReserve(policy string) func() Job {
	return func() Job { return &reserveJob{store: store{policy: policy}} }
}

func (j *reserveJob) Peer() string { return j.policy }

func (j *reserveJob) Prepare(c Case) error {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	j.layout = qwenItem(c.Size)
	tensorOf(j.layout, 0).Data = nil
	return j.fill(c, j.once)
}

func (j *reserveJob) Run(n int) ([]float64, error) { return timedEach(n, j.once, j.settle) }

func (j *reserveJob) once() error {
	key, id := j.nextKey()
	request, err := j.Begin(id)
	if err != nil {
		return err
	}
	r, err := request.Reserve(key, j.layout, objstore.PutOptions{})
	if err != nil {
		return err
	}
	h, err := r.Commit()
	if err != nil {
		return err
	}
	if err := request.Commit(); err != nil {
		return err
	}
	request.Finish()
	j.unread = append(j.unread, h)
	return nil
}
