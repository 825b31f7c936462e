package main

import (
	"errors"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
)

// reserveJob makes objects in place without writing their pixels: Reserve, and Commit of the reservation.
// What is left is all that the store does besides copying. The requests begin and end outside of the clock.
type reserveJob struct {
	store
	layout  *serde.Item
	request objstore.Request
	key     string
}

func ourReserve(policy string) func() Job {
	return func() Job { return &reserveJob{store: store{policy: policy}} }
}

func (j *reserveJob) Peer() string { return j.policy }

func (j *reserveJob) Prepare(c Case) (err error) {
	if err := j.open(c.Size, objstore.Options{RingSize: c.RingBytes}); err != nil {
		return err
	}
	j.layout = qwenItem(c.Size)
	tensorOf(j.layout, 0).Data = nil
	if err := j.next(); err != nil {
		return err
	}
	_, err = timedEach(fills(c), j.once, j.settle)
	return err
}

func (j *reserveJob) Run(n int) ([]float64, error) { return timedEach(n, j.once, j.settle) }

func (j *reserveJob) once() error {
	r, err := j.request.Reserve(j.key, j.layout, objstore.PutOptions{})
	if err != nil {
		return err
	}
	h, err := r.Commit()
	j.unread = append(j.unread, h)
	return err
}

// settle ends the request and begins the next one.
func (j *reserveJob) settle() error {
	if err := j.request.Commit(); err != nil {
		return err
	}
	j.request.Finish()
	return errors.Join(j.store.settle(), j.next())
}

// next begins the request of the next object.
func (j *reserveJob) next() (err error) {
	key, id := j.nextKey()
	j.key = key
	j.request, err = j.Begin(id)
	return err
}
